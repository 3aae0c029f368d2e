"""Inputs of `jaxify` read into a `Program`."""
