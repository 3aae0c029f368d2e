"""Conversions of ours, one file for each family of ops. Importing this registers them all."""

from loopax.jax_backend.ops import (
    blas,
    checks,
    elementwise,
    fourier,
    gradients,
    indexing,
    linalg,
    padded,
    random,
    reductions,
    shapes,
    small_matrices,
    sorting,
    sparse,
    stacking,
    typed_lists,
)

__all__ = [
    "blas",
    "checks",
    "elementwise",
    "fourier",
    "gradients",
    "indexing",
    "linalg",
    "padded",
    "random",
    "reductions",
    "shapes",
    "small_matrices",
    "sorting",
    "sparse",
    "stacking",
    "typed_lists",
]
