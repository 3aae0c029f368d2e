"""Numba's compiler, adapted to emitted functions."""
