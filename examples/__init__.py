"""Simulations written in PyTensor and run by JAX. `python -m examples.random_walk`."""
