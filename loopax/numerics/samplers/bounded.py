"""Continuous families on an interval, by the inverse of their distribution function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Shape
from loopax.numerics.samplers.circular import von_mises
from loopax.numerics.samplers.inverse_gaussian import inverse_gaussian


def uniform(
    key: jax.Array, shape: Shape, dtype: np.dtype, low: jax.Array, high: jax.Array
) -> jax.Array:
    # jax.random.uniform's own bounds give half a derivative where it can return low alone.
    return low + (high - low) * jax.random.uniform(key, shape, low.dtype)


def triangular(
    key: jax.Array,
    shape: Shape,
    dtype: np.dtype,
    left: jax.Array,
    mode: jax.Array,
    right: jax.Array,
) -> jax.Array:
    """Invert the distribution function, which has one formula on each side of the mode."""
    u = jax.random.uniform(key, shape, left.dtype)
    rise, fall, width = mode - left, right - mode, right - left
    below = left + _root(u * width * rise)
    above = right - _root((1 - u) * width * fall)
    return jnp.where(u * width < rise, below, above)


def _root(x: jax.Array) -> jax.Array:
    """The square root, with derivative 0 at 0: NaN would come from the branch not taken."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), jnp.where(x == 0, 0, jnp.nan))


def truncated_exponential(
    key: jax.Array, shape: Shape, dtype: np.dtype, b: jax.Array, loc: jax.Array, scale: jax.Array
) -> jax.Array:
    """Invert ``(1 - exp(-x)) / (1 - exp(-b))``, for draws on ``[loc, loc + b scale]``."""
    u = jax.random.uniform(key, shape, b.dtype)
    return loc + scale * -jnp.log1p(u * jnp.expm1(-b))


def wrapped_around(
    key: jax.Array, shape: Shape, dtype: np.dtype, mu: jax.Array, kappa: jax.Array
) -> jax.Array:
    """Draw angles in ``[-pi, pi]``, for any ``mu``."""
    angle = mu + von_mises(key, jnp.broadcast_to(kappa, shape))
    return angle - 2 * jnp.pi * jax.lax.stop_gradient(jnp.round(angle / (2 * jnp.pi)))


def wald(
    key: jax.Array, shape: Shape, dtype: np.dtype, mean: jax.Array, scale: jax.Array
) -> jax.Array:
    return inverse_gaussian(key, jnp.broadcast_to(mean, shape), jnp.broadcast_to(scale, shape))
