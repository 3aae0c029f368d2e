"""Registration of the IR's ops in PyTensor's own Numba mode."""
