"""Logarithms of powers in densities, at the ends of their support.

The power 0**0 is 1, and varies with neither base nor exponent, as in ``lax.pow``. The derivatives of JAX's
``xlogy`` and ``xlog1py`` are NaN there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy

from loopax.numerics.arrays import Array


def log_power(exponent: Array, x: Array) -> jax.Array:
    """The logarithm of ``x ** exponent``."""
    is_one = (exponent == 0) & (x == 0)
    return jnp.where(is_one, 0, xlogy(exponent, jnp.where(is_one, 0.5, x)))


def log_power_of_rest(exponent: Array, x: Array) -> jax.Array:
    """The logarithm of ``(1 - x) ** exponent``."""
    is_one = (exponent == 0) & (x == 1)
    return jnp.where(is_one, 0, xlog1py(exponent, -jnp.where(is_one, 0.5, x)))
