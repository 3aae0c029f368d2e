"""Conversions of loopax, one file for each family of ops. Importing this registers them all."""

from loopax.jax_backend.ops import (  # noqa: F401
    checks,
    elementwise,
    gradients,
    indexing,
    linalg,
    padded,
    random,
    reductions,
    shapes,
    signals,
    sorting,
    sparse,
    stacking,
    typed_lists,
)
