"""``exp``, ``log`` and related functions of float64, as vector code.

``exp`` and ``log`` are within one unit in the last place, ``expm1``, ``log1p`` and ``softplus`` within
two, the others within three.

The reduction of arguments, the form of ``log`` and its coefficients are taken from FreeBSD's msun
(e_log.c, s_log1p.c, s_expm1.c, by Sun Microsystems); ``exp`` of the reduced argument is its Taylor
polynomial.
"""

from __future__ import annotations

import math

import numpy as np

from loopax.numerics.vector_functions.arithmetic import (
    SHIFT,
    bits,
    compiled,
    from_bits,
    polynomial,
    where,
    with_sign_of,
    within,
)

_LOG2_E = 1.4426950408889634
# 33 bits, and the remainder.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LARGEST, _SMALLEST = 709.782712893384, -745.1332191019412  # beyond these bounds exp is inf or 0

_TAYLOR = polynomial(*(1 / math.factorial(k) for k in range(2, 14)))  # of (exp(r) - 1 - r) / r^2
SMALLEST_NORMAL = 2.2250738585072014e-308
_SHIFT_BITS = int(np.array(SHIFT).view(np.int64))
_MANTISSA = 2**52 - 1
_SQRT_HALF_BITS = int(np.array(np.sqrt(0.5)).view(np.int64))
_ONE_BITS = 1023 << 52
_TWO_52, _TWO_52_BITS = 2.0**52, (1023 + 52) << 52


@compiled
def reduced(x: float) -> tuple[float, float]:
    """``n`` and ``r`` with ``x = n ln 2 + r``, ``|r| <= ln(2) / 2``, for ``x`` within exp's range."""
    n = (x * _LOG2_E + SHIFT) - SHIFT
    return n, (x - n * LN2_HIGH) - n * LN2_LOW


@compiled
def expm1_of_reduced(r: float) -> float:
    """``exp(r) - 1``."""
    return r + r * r * _TAYLOR(r)


@compiled
def power_of_two(n: float) -> float:
    """``2^n`` for an integer within the exponents of normal numbers."""
    return from_bits((bits(n + SHIFT) - _SHIFT_BITS + 1023) << 52)


@compiled
def scaled(x: float, n: float) -> float:
    """``x 2^n``, in two steps, since ``2^n`` may be denormal."""
    half = (n * 0.5 + SHIFT) - SHIFT
    return x * power_of_two(half) * power_of_two(n - half)


@compiled
def exp(x: float) -> float:
    n, r = reduced(within(x, _SMALLEST, _LARGEST))
    half = (n * 0.5 + SHIFT) - SHIFT  # in two steps: 2^n may be denormal
    y = (1.0 + expm1_of_reduced(r)) * power_of_two(half) * power_of_two(n - half)
    y = where(x <= _LARGEST, y, np.inf)
    y = where(x >= _SMALLEST, y, 0.0)
    return where(x == x, y, x)


@compiled
def exp_of_sum(x: float, low: float) -> float:
    """``exp(x + low)`` for ``x`` up to 1000 in size, and ``low`` below its last place."""
    n, r = reduced(x)
    return scaled(1.0 + expm1_of_reduced(r + low), n)


@compiled
def expm1(x: float) -> float:
    n, r = reduced(within(x, -40.0, 700.0))
    scale = power_of_two(n)
    y = scale * expm1_of_reduced(r) + (scale - 1.0)
    y = where(x < 700.0, y, exp(x))
    y = where(x > -40.0, y, -1.0)
    return where(abs(x) > 1e-300, y, x)  # nan, too


@compiled
def exponent_and_fraction(u: float) -> tuple[float, float]:
    """``e`` and ``f`` with ``u = 2^e (1 + f)``, ``1 + f`` in sqrt(1/2) to sqrt(2), ``u`` normal."""
    shifted = bits(u) + (_ONE_BITS - _SQRT_HALF_BITS)
    exponent = from_bits((shifted >> 52) | _TWO_52_BITS) - (_TWO_52 + 1023.0)
    return exponent, from_bits((shifted & _MANTISSA) + _SQRT_HALF_BITS) - 1.0


@compiled
def log_of_sum(u: float, c: float) -> float:
    """``log(u + u c)`` for a normal ``u``, where ``u c`` is below its last place."""
    exponent, f = exponent_and_fraction(u)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (
        3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)
    )
    odd = z * (
        6.666666666666735130e-01
        + w
        * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    small = s * (half + (even + odd)) + (exponent * LN2_LOW + c)
    return exponent * LN2_HIGH - ((half - small) - f)


@compiled
def log(x: float) -> float:
    is_denormal = x < SMALLEST_NORMAL
    u = where(is_denormal, x * 2.0**54, x)
    y = log_of_sum(u, 0.0) - where(is_denormal, 54 * math.log(2.0), 0.0)
    y = where(x < np.inf, y, x)  # nan, too
    return where(x > 0.0, y, where(x == 0.0, -np.inf, np.nan))


@compiled
def log1p(x: float) -> float:
    u = 1.0 + x
    y = log_of_sum(u, (x - (u - 1.0)) / u)
    y = where(x < np.inf, y, x)
    y = where(abs(x) > 1e-300, y, x)
    return where(x > -1.0, y, where(x == -1.0, -np.inf, np.nan))


@compiled
def tanh(x: float) -> float:
    t = expm1(2.0 * within(abs(x), 0.0, 22.0))
    y = with_sign_of(x, t / (t + 2.0))
    return where(x == x, y, x)


@compiled
def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + exp(-x))


@compiled
def softplus(x: float) -> float:
    return where(x > 0.0, x, 0.0) + log1p(exp(-abs(x)))


@compiled
def log1mexp(x: float) -> float:
    far, near = log1p(-exp(x)), log(-expm1(x))
    return where(x < -0.6931471805599453, far, near)


FUNCTIONS = {f.__name__: f for f in (exp, expm1, log, log1p, tanh, sigmoid, softplus, log1mexp)}
