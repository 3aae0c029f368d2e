"""Ops on arrays whose number of rows is only known when the program runs. Importing this registers them."""

from loopax.jax_backend.ops.padded import indices, masked, ordering, rows, shapes  # noqa: F401
