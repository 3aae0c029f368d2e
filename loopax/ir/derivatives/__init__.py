"""Derivatives of bodies and of loops, as graphs."""
