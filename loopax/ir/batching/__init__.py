"""Batching of loops, lists and branches."""
