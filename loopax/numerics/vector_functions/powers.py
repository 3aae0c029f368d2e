"""``x**y`` of float64, as vector code: within one unit in the last place, with C's special values.

The logarithm is the sum of two float64, right to some 64 bits: ``exp(y log(x))`` multiplies its error
by up to 745. It is the series of ``2 artanh(s)`` at ``s = f / (2 + f)``, with the first two terms and
the reduction in two float64 each, by fused products (Dekker 1971).
"""

from __future__ import annotations

import numpy as np

from loopax.numerics.vector_functions.arithmetic import (
    SIGN_BIT,
    bits,
    compiled,
    compiled_as_written,
    exact_product,
    exact_sum_with_smaller,
    from_bits,
    fused,
    nearest_integer,
    polynomial,
    where,
    within,
)
from loopax.numerics.vector_functions.exponentials import (
    LN2_HIGH,
    LN2_LOW,
    SMALLEST_NORMAL,
    exp_of_sum,
    exponent_and_fraction,
)

_THIRD, _THIRD_LOW = 0.3333333333333333, 1.850371707708594e-17
_TAIL = polynomial(
    0.20000000000001128,
    0.14285714285050313,
    0.11111111259884619,
    0.09090892188987329,
    0.07693378464334204,
    0.06628412650622406,
    0.06598136105637513,
)  # of artanh(s) / s = 1 + z / 3 + z^2 (...), z = s^2


@compiled_as_written
def _log(x: float) -> tuple[float, float]:
    """The logarithm of a positive number as a sum of two float64."""
    is_denormal = x < SMALLEST_NORMAL
    exponent, f = exponent_and_fraction(where(is_denormal, x * 2.0**54, x))
    exponent -= where(is_denormal, 54.0, 0.0)
    d, d_low = exact_sum_with_smaller(2.0, f)
    inverse = 1.0 / d
    s = f * inverse
    s_low = (fused(-s, d, f) - s * d_low) * inverse
    z, z_low = exact_product(s, s)
    z_low += 2.0 * s * s_low
    third, third_low = exact_product(z, _THIRD)
    third_low += z * _THIRD_LOW + z_low * _THIRD
    series, low = exact_sum_with_smaller(1.0, third)
    low += third_low + z * z * _TAIL(z)
    y, y_low = exact_product(2.0 * s, series)
    y_low += 2.0 * (s * low + s_low * series)
    high, lost = exact_sum_with_smaller(exponent * LN2_HIGH, y)
    return high, lost + (exponent * LN2_LOW + y_low)


@compiled
def power(x: float, y: float) -> float:
    size = abs(x)
    log, log_low = _log(size)
    log = where(size == 0.0, -np.inf, where(size < np.inf, log, np.inf))
    t, t_low = exact_product(y, log)
    t_low = where(abs(t) < 1000.0, t_low + y * log_low, 0.0)
    result = exp_of_sum(within(t, -1000.0, 1000.0), t_low)
    is_integer = nearest_integer(y) == y
    is_odd = is_integer & (2.0 * nearest_integer(0.5 * y) != y)
    result = where((x >= 0.0) | is_integer | (size == np.inf), result, np.nan)
    result = where((size == 1.0) & is_integer, 1.0, result)
    result = where(is_odd, from_bits(bits(result) ^ (bits(x) & SIGN_BIT)), result)
    result = where((x == x) & (y == y), result, np.nan)
    return where((x == 1.0) | (y == 0.0), 1.0, result)


FUNCTIONS = {"power": power}
