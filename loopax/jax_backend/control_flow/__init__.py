"""Loops, branches and calls of the IR as JAX has them."""
