"""Sample values for step inputs that are unknown while JAX traces, to evaluate the step.

A step may take logarithms, roots and Cholesky factors of its inputs, so floats are positive and square
matrices positive definite. A matrix and its transpose, which may have been hoisted, must agree: arrays of
one shape are equal, and square matrices symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def sample_value(like: Any, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """An array with the shape and dtype of ``like``, with elements of magnitude ``scale``.

    Integers and bools are 0 or 1, depending on ``seed``.
    """
    shape, dtype = tuple(like.shape), np.dtype(like.dtype)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.full(shape, seed % 2, dtype)
    if len(shape) > 1 and shape[-1] < shape[-2]:
        transposed = sample_value(np.empty((*shape[:-2], *shape[:-3:-1]), dtype), seed, scale)
        return np.swapaxes(transposed, -1, -2)
    values = np.random.default_rng(seed).uniform(0.3, 0.7, shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        values = (values + np.swapaxes(values, -1, -2)) / (2 * shape[-1]) + np.eye(shape[-1])
    return (scale * values).astype(dtype)


def compiled_for(function: Callable[..., Any], *samples: Any) -> Callable[..., Any]:
    """Compile a function for known values of these types, to call it while JAX traces; NaN is no error.

    Tracing it inside `jax.ensure_compile_time_eval` takes 30 times as long: each of its constants is an
    operation that is compiled.
    """
    with jax.debug_nans(False):
        compiled = jax.jit(function).lower(*samples).compile()

    def run(*values: Any) -> Any:
        with jax.debug_nans(False):
            return jax.tree.map(np.asarray, compiled(*values))

    return run
