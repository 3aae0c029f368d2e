"""The inverse Gaussian distribution of mean ``mu`` and scale ``lam``.

A root of ``lam (x - mu)^2 / (mu^2 x) = z^2`` for a normal ``z`` (Michael, Schucany and Haas,
"Generating random variates using transformations with multiple roots", The American Statistician 30,
1976). With ``w = mu z^2 / (2 lam)`` the smaller one is ``mu t``, ``t = 1 / (1 + w + sqrt(w^2 + 2 w))``,
in which nothing cancels; it is selected with probability ``1 / (1 + t)``, and else the other, ``mu /
t``.

The selection of the root changes with the parameters, so that the derivative of these steps is not the
derivative of the draw, ``-(dF / dmu) / f``. With the distribution function of Shuster (Journal of the
American Statistical Association 63, 1968) it equals

    dx / dmu = 2 lam / mu^2 * sqrt(x^3 / lam) * M(b),    b = sqrt(lam / x) (x / mu + 1),

where ``M`` is the ratio of the normal's upper tail to its density. ``x`` scales with both parameters,
so ``mu dx/dmu + lam dx/dlam = x`` gives the other one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from loopax.numerics.arrays import Arrays
from loopax.numerics.samplers.rejection import split


def inverse_gaussian(key: jax.Array, mu: jax.Array, lam: jax.Array) -> jax.Array:
    """Draw once for each element of ``mu`` and ``lam``, of one shape and float dtype."""
    return _draw(mu, lam, key)


@jax.custom_jvp
def _draw(mu: jax.Array, lam: jax.Array, key: jax.Array) -> jax.Array:
    normal, choice = split(key)
    w = mu * jax.random.normal(normal, mu.shape, mu.dtype) ** 2 / (2 * lam)
    t = 1 / (1 + w + jnp.sqrt(w * (w + 2)))
    smaller = jax.random.uniform(choice, mu.shape, mu.dtype) * (1 + t) <= 1
    return jnp.where(smaller, mu * t, mu / t)


@_draw.defjvp
def _draw_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    mu, lam, key = primals
    x = _draw(mu, lam, key)
    b = jnp.sqrt(lam / x) * (x / mu + 1)
    tail = jnp.exp(jax.scipy.special.log_ndtr(-b) - jax.scipy.stats.norm.logpdf(b))
    by_mu = 2 * lam / mu**2 * x * jnp.sqrt(x / lam) * tail
    return x, by_mu * tangents[0] + (x - mu * by_mu) / lam * tangents[1]
