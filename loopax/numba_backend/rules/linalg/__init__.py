"""Linear algebra: written out, as loops, or by LAPACK, whichever is faster. Importing this registers it."""

from loopax.numba_backend.rules.linalg import factorizations, products, systems

__all__ = ["factorizations", "products", "systems"]
