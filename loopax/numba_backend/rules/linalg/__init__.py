"""Rules of linear algebra: unrolled, as loops, or by LAPACK. The import registers them."""

from loopax.numba_backend.rules.linalg import factorizations, products, systems

__all__ = ["factorizations", "products", "systems"]
