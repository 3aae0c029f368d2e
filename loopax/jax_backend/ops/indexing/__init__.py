"""Reading and writing parts of arrays. Importing this registers the conversions."""

from loopax.jax_backend.ops.indexing import read_write  # noqa: F401
