"""Conversions of the ops of `pytensor.sparse`. Importing this registers them."""

from loopax.jax_backend.ops.sparse import compiled, conversions, elementwise, indexing, products  # noqa: F401
