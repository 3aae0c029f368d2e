"""Lengths and numbers of steps as affine expressions."""
