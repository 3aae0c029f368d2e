"""Mathematics that knows nothing of PyTensor: special functions, vector functions, samplers."""
