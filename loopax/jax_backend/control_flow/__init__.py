"""Loops, branches and calls of the IR in JAX."""
