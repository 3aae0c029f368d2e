"""The regularized incomplete beta function, with its derivatives with respect to the parameters.

JAX refuses these derivatives ("Betainc gradient with respect to a and b not supported", JAX 0.12). A
censored or truncated Student t distribution of unknown degrees of freedom needs them. The value is JAX's
for small parameters. For large ones JAX ends its fraction too soon, and subtracts large logarithms: it
gives 0.2 for ``betainc(1e8, 1e8, 0.5)``, which is 0.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array, Arrays
from loopax.numerics.special.forward_mode import slope, with_slopes
from loopax.numerics.special.polygammas import gammaln
from loopax.numerics.special.powers import log_power, log_power_of_rest

_MOST_STEPS = 100_000  # a bound; the steps are some ten times the root of the smaller parameter
_LOG_2PI = float(np.log(2 * np.pi))
# Parameters up to which JAX's value has an error below 1e-12, or 1e-4 in single precision.
_LARGE, _LARGE_IN_SINGLE = 1000.0, 100.0


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
    x = jnp.where(inside, x, 0.5)
    z, complement = jnp.where(mirrored, 1 - x, x), jnp.where(mirrored, x, 1 - x)
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

    def first(p: Array, q: Array) -> jax.Array:
        # The reciprocal of 1 - (p + q) z / (p + 1), without the cancellation near the mean.
        return 1 / away_from_zero((1 + p * complement - q * z) / (p + 1))

    fixed_p, fixed_q, fixed_z = map(jax.lax.stop_gradient, (p, q, z))
    halfway = fixed_p, jnp.floor(fixed_q) + 0.5, fixed_z

    def step(state: Arrays) -> Arrays:
        m, c, d, fraction, halfway_c, halfway_d, _, more = state
        c, d, factor = two_terms(p, q, z, m, c, d)
        halfway_c, halfway_d, halfway_factor = two_terms(*halfway, m, halfway_c, halfway_d)
        change = jnp.abs(halfway_factor - 1)
        # More steps than an element needs would add rounding errors.
        fraction = fraction * jnp.where(more > 0, factor, 1)
        more = jnp.where(change <= 4 * eps, more - 1, jnp.where(more > 0, 8, more))
        return m + 1, c, d, fraction, halfway_c, halfway_d, change, more

    ones, number, halfway_number = jnp.ones_like(z), first(p, q), first(*halfway[:2])
    start: Any = (jnp.ones((), z.dtype), ones, number, number, ones, halfway_number)
    start += (ones, jnp.full(z.shape, 8))
    _, _, _, fraction, _, _, change, more = manual_axes.while_loop(
        lambda state: jnp.any(state[-1] > 0) & (state[0] < _MOST_STEPS), step, start
    )
    has_ended = (more <= 0) | (change <= jnp.sqrt(eps))
    value = jnp.exp(_log_front(p, q, z, complement)) * fraction / p
    value = value * jnp.where(has_ended, 1, jnp.nan).astype(value.dtype)
    return jnp.where(mirrored, 1 - value, value)


def _log_front(p: Array, q: Array, z: Array, complement: Array) -> Any:
    """The logarithm of ``z**p (1 - z)**q / B(p, q)`` without large terms; ``complement`` is ``1 - z``.

    By Stirling's series of the three gamma functions; around the mean their large parts cancel the powers,
    as in Loader (2000), "Fast and accurate computation of binomial probabilities".
    """
    excess = q * z - p * complement  # 0 at the mean
    spread = p * _log1p_less(excess / p, z / p * (p + q))
    spread += q * _log1p_less(-excess / q, complement / q * (p + q))
    scale = jnp.log(p / (p + q)) + jnp.log(q) - _LOG_2PI
    return spread + scale / 2 + _stirling_error(p + q) - _stirling_error(p) - _stirling_error(q)


def _log1p_less(x: Array, one_more: Array) -> jax.Array:
    """``log1p(x) - x``; ``one_more`` is ``1 + x``, which may have more digits."""
    is_small = jnp.abs(x) < 0.3
    near = jnp.where(is_small, x, 0)
    ratio = near / (2 + near)
    square = ratio * ratio
    series = jnp.zeros_like(near)
    for k in reversed(range(12)):
        series = series * square + 1 / (2 * k + 3)
    far = jnp.log(jnp.where(is_small, 1, one_more)) - x
    return jnp.where(is_small, ratio * (2 * square * series - near), far)


def _stirling_error(a: Array) -> jax.Array:
    """``gammaln(a)`` less ``(a - 1/2) log(a) - a + log(2 pi) / 2`` (DLMF 5.11.1)."""
    is_large = a > 12
    far = 1 / jnp.where(is_large, a, 12)
    series = jnp.zeros_like(far)
    for c in (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = series * far * far + c
    near = jnp.where(is_large, 1, a)
    direct = gammaln(near) - (near - 0.5) * jnp.log(near) + near - _LOG_2PI / 2
    return jnp.where(is_large, series * far, direct)


def _value(a: Array, b: Array, x: Array) -> jax.Array:
    """JAX's value for small parameters; 0 and 1 at the ends, where its normalization may overflow.

    An infinite parameter puts all mass at one end.
    """
    is_infinite = jnp.isinf(a) | jnp.isinf(b)
    is_valid = (a > 0) & (b > 0) & ~(jnp.isinf(a) & jnp.isinf(b))
    at_an_end = ((x == 0) | (x == 1)) & is_valid
    limit = _LARGE if jnp.finfo(x.dtype).bits > 32 else _LARGE_IN_SINGLE
    is_inside = is_valid & (x > 0) & (x < 1)
    is_large = is_inside & (jnp.maximum(a, b) > limit) & ~is_infinite
    easy = at_an_end | is_large
    value = jax.scipy.special.betainc(*(jnp.where(easy, 0.5, v) for v in (a, b, x)))
    by_fraction = _by_fraction(*(jnp.where(is_large, v, 0.5) for v in (a, b, x)))
    value = jnp.where(is_inside & is_infinite, jnp.isinf(b), value)
    return jnp.where(at_an_end, x, jnp.where(is_large, by_fraction, value))


_betainc = with_slopes(_value, _slope(0), _slope(1), density)
