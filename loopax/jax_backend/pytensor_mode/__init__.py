"""IR ops in PyTensor's own JAX mode."""
