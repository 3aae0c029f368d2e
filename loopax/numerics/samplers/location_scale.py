"""Families that are a standard draw, moved and stretched, or a monotone function of one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytensor.tensor.random.basic as ptr

from loopax.jax_backend.ops.distributions.registry import family, pytensors


def _scale(loc: Any, scale: Any) -> dict[str, Any]:
    return {"scale >= 0": scale >= 0}


for _cls in (ptr.NormalRV, ptr.CauchyRV, ptr.GumbelRV, ptr.LaplaceRV, ptr.LogisticRV):
    pytensors(_cls, _scale)
pytensors(ptr.ExponentialRV, lambda scale: {"scale >= 0": scale >= 0})
pytensors(ptr.ParetoRV, lambda b, scale: {"b > 0": b > 0, "scale >= 0": scale >= 0})


@family(ptr.HalfNormalRV, _scale)
def half_normal(op: Any, key: Any, shape: Any, dtype: Any, loc: Any, scale: Any) -> Any:
    return loc + scale * abs(jax.random.normal(key, shape, loc.dtype))


@family(ptr.HalfCauchyRV, _scale)
def half_cauchy(op: Any, key: Any, shape: Any, dtype: Any, loc: Any, scale: Any) -> Any:
    return loc + scale * abs(jax.random.cauchy(key, shape, loc.dtype))


@family(ptr.LogNormalRV, lambda mean, sigma: {"sigma >= 0": sigma >= 0})
def log_normal(op: Any, key: Any, shape: Any, dtype: Any, mean: Any, sigma: Any) -> Any:
    return jnp.exp(mean + sigma * jax.random.normal(key, shape, mean.dtype))


@family(ptr.WeibullRV, lambda a: {"shape >= 0": a >= 0})
def weibull(op: Any, key: Any, shape: Any, dtype: Any, a: Any) -> Any:
    """``E^(1 / a)`` for an exponential ``E``; 0 for the shape 0, as in NumPy."""
    # An E of 0 has the power 0 but, through its logarithm, the derivative NaN.
    e = jnp.maximum(jax.random.exponential(key, shape, a.dtype), jnp.finfo(a.dtype).tiny)
    positive = a > 0
    return jnp.where(positive | jnp.isnan(a), e ** (1 / jnp.where(a == 0, 1, a)), 0)
