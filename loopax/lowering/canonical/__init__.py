"""Passes that bring what can be written in many ways into one form."""
