"""Logarithms of probabilities of counts, exact to rounding for large counts too.

With ``k! = k^k exp(-k) exp(excess(k))`` the large terms of a mass function cancel on paper and not in
floating point; the difference is the deviance ``x log(x / m) + m - x`` (Loader, "Fast and accurate
computation of binomial probabilities", 2000). Through ``lgamma`` the mass at a mean of 1e15 would be
off by a factor of e^4.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_TABLE = np.array(
    [0.0, *(math.lgamma(k + 1) - k * math.log(k) + k for k in range(1, 16))], dtype=np.float64
)


def excess(k: jax.Array) -> jax.Array:
    """``log k! - k log k + k`` for whole ``k >= 0``: a table, and Stirling's series from 16 on."""
    small = jnp.asarray(_TABLE, dtype=k.dtype)[jnp.clip(k, 0, 15).astype(jnp.int32)]
    n = jnp.maximum(k, 16)
    square = n * n
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / n
    return jnp.where(k < 16, small, 0.5 * jnp.log(2 * jnp.pi * n) + series)


def deviance(x: jax.Array, mean: jax.Array) -> jax.Array:
    """``x log(x / mean) + mean - x`` for ``x, mean >= 0``, by a series where they are close."""
    total = x + mean
    v = (x - mean) / jnp.where(total == 0, 1, total)
    square = jnp.where(abs(v) < 0.1, v, 0) ** 2
    series: Any = 0.0
    for j in range(8, 0, -1):
        series = square * (series + 1 / (2 * j + 1))
    near = (x - mean) * v + 2 * x * v * series
    safe = jnp.where((x > 0) & (mean > 0), x / jnp.where(mean > 0, mean, 1), 1)
    return jnp.where(abs(v) < 0.1, near, x * jnp.log(safe) + mean - x)


def log_poisson(k: jax.Array, mean: jax.Array) -> jax.Array:
    return -excess(k) - deviance(k, mean)


def log_binomial(k: jax.Array, n: jax.Array, p: jax.Array, q: jax.Array) -> jax.Array:
    """The log-mass of ``k`` successes in ``n`` trials, with ``q = 1 - p``."""
    shared = excess(n) - excess(k) - excess(n - k)
    return shared - deviance(k, n * p) - deviance(n - k, n * q)


def log_hypergeometric(
    k: jax.Array, good: jax.Array, bad: jax.Array, sample: jax.Array
) -> jax.Array:
    """The log-mass of ``k`` good items: two binomials of one ``p``, given their sum (Loader, 5)."""
    total = good + bad
    p = sample / total
    q = (total - sample) / total
    joint = log_binomial(k, good, p, q) + log_binomial(sample - k, bad, p, q)
    return joint - log_binomial(sample, total, p, q)
