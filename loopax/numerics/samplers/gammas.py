"""Families of gamma draws: JAX's, which have the derivative of the distribution function.

Where a small shape would underflow, the draws are logarithms.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics.samplers.rejection import split


def log_gamma(key: Any, shape: Any, a: Any) -> Any:
    """Draw logarithms of gamma variables of shape ``a`` and scale 1; -inf where ``a`` is 0."""
    return jnp.where(
        a == 0, -jnp.inf, jax.random.loggamma(key, jnp.where(a == 0, 1, a), shape, a.dtype)
    )


def gamma_draw(key: Any, shape: Any, a: Any) -> Any:
    """Draw gamma variables of shape ``a`` and scale 1; 0 where ``a`` is 0, as in NumPy."""
    return jnp.where(a == 0, 0, jax.random.gamma(key, jnp.where(a == 0, 1, a), shape, a.dtype))


def beta_draw(key: Any, shape: Any, a: Any, b: Any) -> Any:
    """Draw beta variables from two gamma variables, whose logarithms differ by the logit."""
    first, second = split(key)
    return jax.nn.sigmoid(log_gamma(first, shape, a) - log_gamma(second, shape, b))


def gamma(key: Any, shape: Any, dtype: Any, a: Any, scale: Any) -> Any:
    return scale * gamma_draw(key, shape, a)


def inverse_gamma(key: Any, shape: Any, dtype: Any, a: Any, scale: Any) -> Any:
    return scale * jnp.exp(-log_gamma(key, shape, a))


def generalized_gamma(key: Any, shape: Any, dtype: Any, alpha: Any, p: Any, lambd: Any) -> Any:
    return lambd * jnp.exp(log_gamma(key, shape, alpha / p) / p)


def beta(key: Any, shape: Any, dtype: Any, a: Any, b: Any) -> Any:
    return beta_draw(key, shape, a, b)


def student_t(key: Any, shape: Any, dtype: Any, df: Any, loc: Any, scale: Any) -> Any:
    """Draw a normal over the root of a gamma of mean 1; the normal itself at infinite ``df``."""
    normal, chi = split(key)
    half = jnp.where(df == jnp.inf, 1, df) / 2
    log_spread = (jnp.log(half) - log_gamma(chi, shape, half)) / 2
    spread = jnp.where(df == jnp.inf, 1, jnp.exp(log_spread))
    return loc + scale * jax.random.normal(normal, shape, df.dtype) * spread


def dirichlet(key: Any, shape: Any, dtype: Any, a: Any) -> Any:
    return jax.nn.softmax(log_gamma(key, (*shape, a.shape[-1]), a), axis=-1)
