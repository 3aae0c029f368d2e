"""Mathematics independent of PyTensor: special functions, vector functions, samplers."""
