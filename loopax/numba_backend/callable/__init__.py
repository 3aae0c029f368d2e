"""The callable that `jaxify(..., backend='numba')` returns."""
