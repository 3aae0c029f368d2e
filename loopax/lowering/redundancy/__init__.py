"""Passes that remove unnecessary computation: dead, repeated, zero, or equal at every step."""
