"""Derivatives of ops that are wrong or missing in PyTensor. `loopax.ir` registers them."""
