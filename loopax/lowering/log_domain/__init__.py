"""Logarithms of probabilities, computed as probabilities: for native code."""
