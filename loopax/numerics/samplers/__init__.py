"""Samplers of distributions in JAX: pure functions of a key and of parameters."""
