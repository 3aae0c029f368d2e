"""Building blocks of samplers: keys, uniform numbers, and rejection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Arrays, Shape


def uniform(key: jax.Array, shape: Shape, dtype: np.dtype) -> jax.Array:
    """Draw uniform numbers on (0, 1], with finite logarithms."""
    return 1 - jax.random.uniform(key, shape, dtype)


_ROUNDS = 200  # a bound that an acceptance above one half never reaches


def by_rejection(
    key: jax.Array,
    active: jax.Array,
    dtype: np.dtype,
    propose: Callable[[Any, Any], tuple[Any, Any]],
) -> jax.Array:
    """Draw the first accepted proposal where ``active``, else NaN.

    ``propose`` maps two uniform numbers to a proposal and whether it is accepted.
    """

    def step(carry: Any) -> Arrays:
        draws, open_, key, rounds = carry
        key, pair = split(key)
        x, accepted = propose(*uniform(pair, (2, *active.shape), dtype))
        return jnp.where(open_ & accepted, x, draws), open_ & ~accepted, key, rounds + 1

    def unfinished(carry: Any) -> jax.Array:
        return carry[1].any() & (carry[3] < _ROUNDS)

    start = (jnp.full(active.shape, jnp.nan, dtype), active, key, 0)
    return manual_axes.while_loop(unfinished, step, start)[0]


def split(key: jax.Array, count: int = 2) -> list[Any]:
    """Split ``key`` into ``count`` keys."""
    return list(jax.random.split(key, count))
