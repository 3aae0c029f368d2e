"""Continuous families on an interval, by the inverse of their distribution function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics.samplers.circular import von_mises
from loopax.numerics.samplers.inverse_gaussian import inverse_gaussian


def uniform(key: Any, shape: Any, dtype: Any, low: Any, high: Any) -> Any:
    # jax.random.uniform's own bounds give half a derivative where it can return low alone.
    return low + (high - low) * jax.random.uniform(key, shape, low.dtype)


def triangular(key: Any, shape: Any, dtype: Any, left: Any, mode: Any, right: Any) -> Any:
    """Invert the distribution function, which has one formula on each side of the mode."""
    u = jax.random.uniform(key, shape, left.dtype)
    rise, fall, width = mode - left, right - mode, right - left
    below = left + _root(u * width * rise)
    above = right - _root((1 - u) * width * fall)
    return jnp.where(u * width < rise, below, above)


def _root(x: Any) -> Any:
    """The square root, with derivative 0 at 0: NaN would come from the branch not taken."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), jnp.where(x == 0, 0, jnp.nan))


def truncated_exponential(key: Any, shape: Any, dtype: Any, b: Any, loc: Any, scale: Any) -> Any:
    """Invert ``(1 - exp(-x)) / (1 - exp(-b))``, for draws on ``[loc, loc + b scale]``."""
    u = jax.random.uniform(key, shape, b.dtype)
    return loc + scale * -jnp.log1p(u * jnp.expm1(-b))


def wrapped_around(key: Any, shape: Any, dtype: Any, mu: Any, kappa: Any) -> Any:
    """Draw angles in ``[-pi, pi]``, for any ``mu``."""
    angle = mu + von_mises(key, jnp.broadcast_to(kappa, shape))
    return angle - 2 * jnp.pi * jax.lax.stop_gradient(jnp.round(angle / (2 * jnp.pi)))


def wald(key: Any, shape: Any, dtype: Any, mean: Any, scale: Any) -> Any:
    return inverse_gaussian(key, jnp.broadcast_to(mean, shape), jnp.broadcast_to(scale, shape))
