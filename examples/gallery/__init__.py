"""Executed examples: real models with their data, timed against PyMC and PyTensor."""
