"""Families that shift and scale a standard draw, or apply a monotone function to one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Shape


def half_normal(
    key: jax.Array, shape: Shape, dtype: np.dtype, loc: jax.Array, scale: jax.Array
) -> jax.Array:
    return loc + scale * abs(jax.random.normal(key, shape, loc.dtype))


def half_cauchy(
    key: jax.Array, shape: Shape, dtype: np.dtype, loc: jax.Array, scale: jax.Array
) -> jax.Array:
    return loc + scale * abs(jax.random.cauchy(key, shape, loc.dtype))


def log_normal(
    key: jax.Array, shape: Shape, dtype: np.dtype, mean: jax.Array, sigma: jax.Array
) -> jax.Array:
    return jnp.exp(mean + sigma * jax.random.normal(key, shape, mean.dtype))


def weibull(key: jax.Array, shape: Shape, dtype: np.dtype, a: jax.Array) -> jax.Array:
    """Draw ``E^(1 / a)`` for an exponential ``E``; 0 for the shape 0, as in NumPy."""
    # E = 0 has the power 0 but, through its logarithm, the derivative NaN.
    e = jnp.maximum(jax.random.exponential(key, shape, a.dtype), jnp.finfo(a.dtype).tiny)
    positive = a > 0
    return jnp.where(positive | jnp.isnan(a), e ** (1 / jnp.where(a == 0, 1, a)), 0)
