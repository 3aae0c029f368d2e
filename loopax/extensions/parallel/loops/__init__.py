"""Loops run in parallel over their steps: affine recurrences, associative scans, Newton's method."""
