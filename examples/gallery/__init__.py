"""Executed examples: real models with their data, timed beside PyMC and PyTensor."""
