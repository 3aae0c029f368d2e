"""The regularized incomplete beta function, with its derivatives with respect to the parameters.

The value is JAX's, which refuses these derivatives ("Betainc gradient with respect to a and b not
supported", JAX 0.12). A censored or truncated Student t distribution of unknown degrees of freedom
needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array, Arrays
from loopax.numerics.special.forward_mode import slope, with_slopes
from loopax.numerics.special.polygammas import gammaln
from loopax.numerics.special.powers import log_power, log_power_of_rest

_MOST_STEPS = 100_000  # a bound; the steps are some ten times the root of the larger parameter


def betainc(a: Array, b: Array, x: Array) -> jax.Array:
    """``I_x(a, b)``, elementwise."""
    return _betainc(a, b, x)


def _slope(k: int) -> Callable[..., Any]:
    """The derivative with respect to parameter ``k``."""

    def along(a: Array, b: Array, x: Array) -> jax.Array:
        at_an_end = (x == 0) | (x == 1)  # the function is 0 or 1 for all parameters
        return jnp.where(at_an_end, 0, slope(_by_fraction, k)(a, b, x))

    return along


def density(a: Array, b: Array, x: Array) -> jax.Array:
    """The derivative with respect to ``x``."""
    powers = log_power(a - 1, x) + log_power_of_rest(b - 1, x)
    return jnp.exp(powers - _betaln(a, b))


def density_of(a: Array, b: Array, logit: Array) -> jax.Array:
    """The density of the logit of a beta variable."""
    return jnp.exp(-a * jax.nn.softplus(-logit) - b * jax.nn.softplus(logit) - _betaln(a, b))


def _betaln(a: Array, b: Array) -> jax.Array:
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def _by_fraction(a: Array, b: Array, x: Array) -> jax.Array:
    """The function by its continued fraction (DLMF 8.17.22), which forward mode can differentiate.

    Lentz's method, on the side of the mean on which it converges; the tangents converge as fast, a few
    steps later. Where ``q`` is an integer the fraction ends after ``q`` terms, and its tangents do not: the
    number of steps is that for a number halfway between two integers.
    """
    mirrored = x > (a + 1) / (a + b + 2)
    inside = (x > 0) & (x < 1)
    z = jnp.where(inside, jnp.where(mirrored, 1 - x, x), 0.5)
    p, q = jnp.where(mirrored, b, a), jnp.where(mirrored, a, b)
    eps = jnp.finfo(z.dtype).eps
    tiny = jnp.finfo(z.dtype).tiny / eps

    def away_from_zero(y: Array) -> jax.Array:
        return jnp.where(jnp.abs(y) < tiny, tiny, y)

    def two_terms(p: Array, q: Array, z: Array, m: Array, c: Array, d: Array) -> tuple[Any, ...]:
        even = m * (q - m) * z / ((p + 2 * m - 1) * (p + 2 * m))
        odd = -(p + m) * (p + q + m) * z / ((p + 2 * m) * (p + 2 * m + 1))
        factor = jnp.ones_like(z)
        for term in (even, odd):
            d = 1 / away_from_zero(1 + term * d)
            c = away_from_zero(1 + term / c)
            factor = factor * c * d
        return c, d, factor

    def first(p: Array, q: Array, z: Array) -> jax.Array:
        return 1 / away_from_zero(1 - (p + q) * z / (p + 1))

    fixed_p, fixed_q, fixed_z = map(jax.lax.stop_gradient, (p, q, z))
    halfway = fixed_p, jnp.floor(fixed_q) + 0.5, fixed_z

    def step(state: Arrays) -> Arrays:
        m, c, d, fraction, halfway_c, halfway_d, more = state
        c, d, factor = two_terms(p, q, z, m, c, d)
        halfway_c, halfway_d, halfway_factor = two_terms(*halfway, m, halfway_c, halfway_d)
        more = jnp.where(jnp.any(jnp.abs(halfway_factor - 1) > eps), 8, more - 1)
        return m + 1, c, d, fraction * factor, halfway_c, halfway_d, more

    ones, number = jnp.ones_like(z), first(p, q, z)
    start = (jnp.ones((), z.dtype), ones, number, number, ones, first(*halfway), jnp.array(8))
    _, _, _, fraction, *_ = manual_axes.while_loop(
        lambda state: (state[-1] > 0) & (state[0] < _MOST_STEPS), step, start
    )
    value = jnp.exp(p * jnp.log(z) + q * jnp.log1p(-z) - _betaln(p, q)) * fraction / p
    return jnp.where(mirrored, 1 - value, value)


def _value(a: Array, b: Array, x: Array) -> jax.Array:
    """JAX's value, but 0 and 1 at the ends, where its normalization may overflow (0.7, 1e38)."""
    at_an_end = ((x == 0) | (x == 1)) & (a > 0) & (b > 0)
    return jnp.where(at_an_end, x, jax.scipy.special.betainc(a, b, jnp.where(at_an_end, 0.5, x)))


_betainc = with_slopes(_value, _slope(0), _slope(1), density)
