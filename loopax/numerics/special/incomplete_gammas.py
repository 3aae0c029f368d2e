"""The incomplete gamma functions, for large shapes and at the ends too.

The terms in JAX's sums grow with the square root of the shape, so that ``gammainc(1e300, 1e300)`` does
not end. For large shapes this is Temme's uniform expansion instead (DLMF 8.12.3 and 8.12.9), whose
error falls with the third power of the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array, Arrays, widest_float
from loopax.numerics.special.forward_mode import slope, with_slopes
from loopax.numerics.special.polygammas import gamma, gammaln
from loopax.numerics.special.powers import log_power

_LARGE = 1e4  # below, JAX sums fewer than a thousand terms; above, the expansion is exact to 1e-15
_MOST_STEPS = 5000  # a bound; the steps are some ten times the root of the shape
_SMALL = 0.1  # below, the upper function is small, and 1 minus the lower would cancel
# The coefficients of powers of eta in the terms of DLMF 8.12.12, as in 8.12.10 and Temme's table.
_C0 = (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600)
_C1 = (-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860)
_C2 = (25 / 6048, -139 / 51840)

# Riemann's zeta function from 2 on (DLMF 25.6), which XLA would take seconds to fold.
_ZETAS = (
    *(1.6449340668482264, 1.2020569031595943, 1.0823232337111382, 1.0369277551433699),
    *(1.0173430619844491, 1.0083492773819228, 1.0040773561979443, 1.0020083928260822),
    *(1.0009945751278180, 1.0004941886041195, 1.0002460865533080, 1.0001227133475785),
    *(1.0000612481350587, 1.0000305882363070, 1.0000152822594086, 1.0000076371976379),
)


def gammainc(k: Array, x: Array) -> jax.Array:
    """The regularized lower incomplete gamma function of shape ``k``."""
    return _lower(k, x)


def gammaincc(k: Array, x: Array) -> jax.Array:
    """The regularized upper incomplete gamma function, ``1 - gammainc(k, x)`` with all digits."""
    return _upper(k, x)


def gammal(k: Array, x: Array) -> jax.Array:
    return gammainc(k, x) * gamma(k)


def gammau(k: Array, x: Array) -> jax.Array:
    return gammaincc(k, x) * gamma(k)


def _incomplete(
    k: Array, x: Array, upper: bool, plain_sum: Callable[..., Any] | None = None
) -> jax.Array:
    """The function, with ``plain_sum`` for JAX's, which has no second derivative by ``k``.

    With it the slope by ``k`` at 0 is the limit from above, and NaN where the function is.
    """
    has_slope = plain_sum is not None
    inside = ((k > 0) | (has_slope & (k == 0))) & (x > 0) & jnp.isfinite(k) & jnp.isfinite(x)
    large = inside & (k > _large(k.dtype))
    plain = inside & ~large
    value = jnp.where(
        large,
        _by_expansion(jnp.where(large, k, _LARGE), jnp.where(large, x, _LARGE), upper),
        _series(jnp.where(plain, k, 1), jnp.where(plain, x, 1), upper, plain_sum),
    )
    undefined = (k < 0) | (x < 0) | ((k == 0) & (x == 0)) | (jnp.isinf(k) & jnp.isinf(x))
    undefined |= jnp.isnan(k) | jnp.isnan(x)
    # All of the mass is at 0 for shape 0, and nowhere for an infinite one.
    all_below = ((k == 0) | (x == jnp.inf)) != upper
    return jnp.where(inside, value, jnp.where(undefined, jnp.nan * k, jnp.where(all_below, 1, 0)))


def _large(dtype: np.dtype) -> float:
    # In float32 the logarithms in JAX's sums cancel: an error of 1e-4 for a shape of 1,000.
    return _LARGE if dtype == jnp.float64 else 200.0


def _polynomial(coefficients: Sequence[float], x: Array) -> jax.Array:
    total = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _excess(mu: Array) -> jax.Array:
    """``(mu - log1p(mu)) / mu**2``, by its series near 0, where the difference has no digits left."""
    near = jnp.abs(mu) < 0.2
    small = jnp.where(near, mu, 0)
    series = _polynomial([(-1) ** n / n for n in range(2, 27)], small)
    other = jnp.where(near, 1, mu)
    return jnp.where(near, series, (other - jnp.log1p(other)) / other**2)


def _by_expansion(k: Array, x: Array, upper: bool) -> jax.Array:
    dtype = k.dtype
    wide = widest_float()
    k, x = k.astype(wide), x.astype(wide)
    mu = jnp.clip((x - k) / k, -1 + 1e-12, 1e8)  # beyond, the result is 0 or 1, as at the bounds
    eta = mu * jnp.sqrt(2 * _excess(mu))
    # Beyond, the result is 0 or 1, and the terms of the series would be large.
    first, *higher = (_polynomial(c, jnp.clip(eta, -1, 1)) for c in (_C0, _C1, _C2))
    far = jnp.abs(eta) > 0.1
    first = jnp.where(far, 1 / jnp.where(far, mu, 1) - 1 / jnp.where(far, eta, 1), first)
    correction = first + (higher[0] + higher[1] / k) / k
    correction = correction * jnp.exp(-k * eta**2 / 2) / jnp.sqrt(2 * np.pi * k)
    sign = 1 if upper else -1
    tail = 0.5 * jax.scipy.special.erfc(sign * eta * jnp.sqrt(k / 2))
    return (tail + sign * correction).astype(dtype)


def _series(k: Array, x: Array, upper: bool, plain_sum: Callable[..., Any] | None) -> jax.Array:
    jax_function = jax.scipy.special.gammaincc if upper else jax.scipy.special.gammainc
    plain_sum = plain_sum or jax_function
    small = (k < _SMALL) & (x <= 1.1)
    return jnp.where(
        small,
        _small_shape_series(jnp.where(small, k, _SMALL), jnp.where(small, x, 1), upper),
        plain_sum(jnp.where(small, 1, k), jnp.where(small, 1, x)),
    )


def _summed(k: Array, x: Array, upper: bool) -> jax.Array:
    """JAX's sums, in loops that forward mode differentiates to any order.

    The power series (DLMF 8.11.4) left of the mean, the continued fraction (8.9.2) by Lentz's method
    right of it, with some steps more than the value needs: tangents converge as fast, a little later.

    The fraction ends after ``k`` terms where ``k`` is an integer, and almost ends near one, but its
    tangents do not: the number of steps is that of a shape halfway between two integers.
    """
    is_left = x < k + 1
    near, far = jnp.where(is_left, x, 1), jnp.where(is_left, k + 2, x)
    eps, tiny = jnp.finfo(x.dtype).eps, jnp.finfo(x.dtype).tiny
    ones = jnp.ones_like(x)

    def add(state: Arrays) -> Arrays:
        n, term, total = state
        term = term * near / (k + n)
        return n + 1, term, total + term

    _, _, total = manual_axes.while_loop(
        lambda s: jnp.any(s[1] > 1e-4 * eps * s[2]) & (s[0] < _MOST_STEPS),
        add,
        (jnp.ones((), x.dtype), ones, ones),
    )

    def convergents(
        k: Array, x: Array, n: Array, c: Array, d: Array
    ) -> tuple[jax.Array, jax.Array]:
        term, b = -n * (n - k), x + 1 - k + 2 * n
        return _away_from(tiny, b + term / c), 1 / _away_from(tiny, term * d + b)

    halfway = jnp.floor(jax.lax.stop_gradient(k)) + 0.5
    fixed_far = jax.lax.stop_gradient(far)

    def another(state: Arrays) -> Arrays:
        n, c, d, fraction, halfway_c, halfway_d, more = state
        c, d = convergents(k, far, n, c, d)
        halfway_c, halfway_d = convergents(halfway, fixed_far, n, halfway_c, halfway_d)
        going = jnp.any(jnp.abs(halfway_c * halfway_d - 1) > eps)
        more = jnp.where(going, 8, more - 1)
        return n + 1, c, d, fraction * c * d, halfway_c, halfway_d, more

    first, halfway_first = 1 / (far + 1 - k), 1 / (fixed_far + 1 - halfway)
    c = ones / tiny**0.5
    start = (jnp.ones((), x.dtype), c, first, first, c, halfway_first, jnp.array(8))
    _, _, _, fraction, *_ = manual_axes.while_loop(
        lambda s: (s[-1] > 0) & (s[0] < _MOST_STEPS), another, start
    )
    size = jnp.exp(k * jnp.log(x) - x - gammaln(k + 1))
    lower, above = size * total, k * size * fraction
    return jnp.where(is_left, 1 - lower, above) if upper else jnp.where(is_left, lower, 1 - above)


def _away_from(tiny: ArrayLike, y: Array) -> jax.Array:
    return jnp.where(jnp.abs(y) < tiny, tiny, y)


def _small_shape_series(k: Array, x: Array, upper: bool) -> jax.Array:
    """``x**k / gamma(k + 1) * (1 + sum of k (-x)**n / (n! (k + n)))``, or 1 minus that."""
    # log(gamma(1 + k)) by its series, with a relative error in k, not in 1.
    coefficients = [-np.euler_gamma, *((-1) ** n * z / n for n, z in enumerate(_ZETAS, 2))]
    log_gamma = k * _polynomial(coefficients, k)
    total, factor = jnp.zeros_like(x), jnp.ones_like(x)
    for n in range(1, 19):
        factor = factor * -x / n
        total = total + factor / (k + n)
    exponent = k * jnp.log(x) - log_gamma
    if upper:
        return -jnp.expm1(exponent) - k * jnp.exp(exponent) * total
    return jnp.exp(exponent) * (1 + k * total)


def density(k: Array, x: Array) -> jax.Array:
    """The derivative with respect to ``x``."""
    large = (k > _large(k.dtype)) & (x > 0)
    wide = widest_float()
    shape = jnp.where(large, k, _LARGE).astype(wide)
    at = jnp.where(large, x, _LARGE).astype(wide)
    # By Stirling's formula: the terms of the logarithm below would be large, and cancel.
    mu = (at - shape) / shape
    size = jnp.sqrt(shape / (2 * np.pi)) * jnp.exp(-shape * mu**2 * _excess(mu))
    by_stirling = size / (at * (1 + 1 / (12 * shape)))
    shape, at = jnp.where(large, 1, k), jnp.where(large, 1, x)
    plain = jnp.exp(log_power(shape - 1, at) - at - gammaln(shape))
    value = jnp.where(large, by_stirling.astype(x.dtype), plain)
    is_constant = (x == jnp.inf) | ((k == 0) & (x > 0))
    return jnp.where((k >= 0) & (x >= 0), jnp.where(is_constant, 0, value), jnp.nan)


def _with_derivatives(upper: bool) -> Callable[..., Any]:
    def value(k: Array, x: Array) -> jax.Array:
        return _incomplete(k, x, upper)

    by_shape = slope(lambda k, x: _incomplete(k, x, upper, partial(_summed, upper=upper)), 0)
    by_x = (lambda k, x: -density(k, x)) if upper else density
    return with_slopes(value, by_shape, by_x)


_lower = _with_derivatives(False)
_upper = _with_derivatives(True)
