"""Ops on arrays whose number of rows is known only at run time. Importing this registers them."""

from loopax.jax_backend.ops.padded import indices, masked, ordering, rows, shapes  # noqa: F401
