"""Linear algebra. Importing this registers the conversions."""

from loopax.jax_backend.ops.linalg import decompositions, small_matrices, systems  # noqa: F401
