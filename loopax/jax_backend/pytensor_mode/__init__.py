"""Our ops in PyTensor's own JAX mode."""
