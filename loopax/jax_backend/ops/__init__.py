"""Conversions of ours, one file for each family of ops. Importing this registers them all."""

from loopax.jax_backend.ops import (
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

__all__ = [
    "checks",
    "elementwise",
    "gradients",
    "indexing",
    "linalg",
    "padded",
    "random",
    "reductions",
    "shapes",
    "signals",
    "sorting",
    "sparse",
    "stacking",
    "typed_lists",
]
