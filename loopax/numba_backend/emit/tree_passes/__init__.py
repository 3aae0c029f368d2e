"""Passes over the tree of statements of an emitted function."""
