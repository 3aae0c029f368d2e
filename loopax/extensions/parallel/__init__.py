"""Loops in parallel over their steps, associative scans, and the filters that are made of these."""
