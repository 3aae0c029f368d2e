"""The rules of the emitter, one file for each family of ops. Importing this registers them."""

from loopax.numba_backend.rules import elementwise, indexing, lists, loops, products, rows, shapes

__all__ = ["elementwise", "indexing", "lists", "loops", "products", "rows", "shapes"]
