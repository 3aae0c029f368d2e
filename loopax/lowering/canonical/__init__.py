"""Passes that bring equivalent programs into one form."""
