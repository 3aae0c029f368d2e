"""Families of gamma draws: JAX's, which have the derivative of the distribution function.

If a small shape would underflow, the draws are logarithms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Shape
from loopax.numerics.samplers.rejection import split


def log_gamma(key: jax.Array, shape: Shape, a: jax.Array) -> jax.Array:
    """Draw logarithms of gamma variables of shape ``a`` and scale 1; -inf where ``a`` is 0."""
    return jnp.where(
        a == 0, -jnp.inf, jax.random.loggamma(key, jnp.where(a == 0, 1, a), shape, a.dtype)
    )


def gamma_draw(key: jax.Array, shape: Shape, a: jax.Array) -> jax.Array:
    """Draw gamma variables of shape ``a`` and scale 1; 0 where ``a`` is 0, as in NumPy."""
    return jnp.where(a == 0, 0, jax.random.gamma(key, jnp.where(a == 0, 1, a), shape, a.dtype))


def beta_draw(key: jax.Array, shape: Shape, a: jax.Array, b: jax.Array) -> jax.Array:
    """Draw beta variables from two gamma variables, whose logarithms differ by the logit."""
    first, second = split(key)
    return jax.nn.sigmoid(log_gamma(first, shape, a) - log_gamma(second, shape, b))


def gamma(
    key: jax.Array, shape: Shape, dtype: np.dtype, a: jax.Array, scale: jax.Array
) -> jax.Array:
    return scale * gamma_draw(key, shape, a)


def inverse_gamma(
    key: jax.Array, shape: Shape, dtype: np.dtype, a: jax.Array, scale: jax.Array
) -> jax.Array:
    return scale * jnp.exp(-log_gamma(key, shape, a))


def generalized_gamma(
    key: jax.Array, shape: Shape, dtype: np.dtype, alpha: jax.Array, p: jax.Array, lambd: jax.Array
) -> jax.Array:
    return lambd * jnp.exp(log_gamma(key, shape, alpha / p) / p)


def beta(key: jax.Array, shape: Shape, dtype: np.dtype, a: jax.Array, b: jax.Array) -> jax.Array:
    return beta_draw(key, shape, a, b)


def student_t(
    key: jax.Array, shape: Shape, dtype: np.dtype, df: jax.Array, loc: jax.Array, scale: jax.Array
) -> jax.Array:
    """Draw a normal over the root of a gamma of mean 1; the normal itself at infinite ``df``."""
    normal, chi = split(key)
    half = jnp.where(df == jnp.inf, 1, df) / 2
    log_spread = (jnp.log(half) - log_gamma(chi, shape, half)) / 2
    spread = jnp.where(df == jnp.inf, 1, jnp.exp(log_spread))
    return loc + scale * jax.random.normal(normal, shape, df.dtype) * spread


def dirichlet(key: jax.Array, shape: Shape, dtype: np.dtype, a: jax.Array) -> jax.Array:
    return jax.nn.softmax(log_gamma(key, (*shape, a.shape[-1]), a), axis=-1)
