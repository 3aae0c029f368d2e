"""How Numba compiles native code: with what it knows of emitted functions."""
