"""Conversions of the ops of `pytensor.sparse`. Importing this registers them."""

from loopax.jax_backend.ops.sparse import (  # noqa: F401
    compiled,
    conversions,
    csm,
    elementwise,
    indexing,
    products,
)
