"""The ops of the IR in PyTensor's own Numba mode."""
