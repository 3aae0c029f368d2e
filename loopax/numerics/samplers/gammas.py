"""Families made of gamma draws: JAX's, which have the derivative of the distribution function.

Where a small shape would underflow, they are drawn as logarithms.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytensor.tensor.random.basic as ptr

from loopax.jax_backend.ops.distributions.registry import family, split


def log_gamma(key: Any, shape: Any, a: Any) -> Any:
    """The logarithm of gamma draws of shape parameter ``a`` and scale 1; -inf where ``a`` is 0."""
    return jnp.where(
        a == 0, -jnp.inf, jax.random.loggamma(key, jnp.where(a == 0, 1, a), shape, a.dtype)
    )


def gamma_draw(key: Any, shape: Any, a: Any) -> Any:
    """Gamma draws of shape parameter ``a`` and scale 1; 0 where ``a`` is 0, as in NumPy."""
    return jnp.where(a == 0, 0, jax.random.gamma(key, jnp.where(a == 0, 1, a), shape, a.dtype))


def beta_draw(key: Any, shape: Any, a: Any, b: Any) -> Any:
    """Beta draws from two gamma draws, whose logarithms differ by the logit."""
    first, second = split(key)
    return jax.nn.sigmoid(log_gamma(first, shape, a) - log_gamma(second, shape, b))


def _shape_scale(a: Any, scale: Any) -> dict[str, Any]:
    return {"shape >= 0": a >= 0, "scale >= 0": scale >= 0}


@family(ptr.GammaRV, _shape_scale)
def gamma(op: Any, key: Any, shape: Any, dtype: Any, a: Any, scale: Any) -> Any:
    return scale * gamma_draw(key, shape, a)


@family(ptr.InvGammaRV, _shape_scale)
def inverse_gamma(op: Any, key: Any, shape: Any, dtype: Any, a: Any, scale: Any) -> Any:
    return scale * jnp.exp(-log_gamma(key, shape, a))


@family(
    ptr.GenGammaRV,
    lambda alpha, p, lambd: {"alpha / p > 0": alpha * p > 0, "lambd >= 0": lambd >= 0},
)
def generalized_gamma(
    op: Any, key: Any, shape: Any, dtype: Any, alpha: Any, p: Any, lambd: Any
) -> Any:
    return lambd * jnp.exp(log_gamma(key, shape, alpha / p) / p)


@family(ptr.BetaRV, lambda a, b: {"alpha > 0": a > 0, "beta > 0": b > 0})
def beta(op: Any, key: Any, shape: Any, dtype: Any, a: Any, b: Any) -> Any:
    return beta_draw(key, shape, a, b)


@family(ptr.StudentTRV, lambda df, loc, scale: {"df > 0": df > 0, "scale >= 0": scale >= 0})
def student_t(op: Any, key: Any, shape: Any, dtype: Any, df: Any, loc: Any, scale: Any) -> Any:
    """A normal over the root of a gamma of mean 1; the normal itself at infinite ``df``."""
    normal, chi = split(key)
    half = jnp.where(df == jnp.inf, 1, df) / 2
    log_spread = (jnp.log(half) - log_gamma(chi, shape, half)) / 2
    spread = jnp.where(df == jnp.inf, 1, jnp.exp(log_spread))
    return loc + scale * jax.random.normal(normal, shape, df.dtype) * spread


@family(
    ptr.DirichletRV,
    lambda a: {"alphas >= 0": (a >= 0).all(-1), "sum(alphas) > 0": a.sum(-1) > 0},
)
def dirichlet(op: Any, key: Any, shape: Any, dtype: Any, a: Any) -> Any:
    return jax.nn.softmax(log_gamma(key, (*shape, a.shape[-1]), a), axis=-1)
