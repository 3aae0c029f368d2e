"""``sin`` and ``cos`` of float64, as vector code, within two units in the last place.

The nearest multiple of pi is subtracted from the argument (for ``cos``, the nearest odd multiple of pi
/ 2), and the sine of the remainder is one minimax polynomial. Up to 2^24 pi has three parts, as in Cody
and Waite (1980): with fused products the first difference is exact. Beyond, the reduction uses three
float64 of the digits of 1 / pi that matter at that size, as in Payne and Hanek (1983). So the remainder
is right to 2^-98, which is two units in its last place for all but one of 2^45 arguments. Vector code
computes both for every element, but loads the digits, from a table with a row for each 8 powers of two,
for large ones alone.
"""

from __future__ import annotations

import math
from fractions import Fraction

from loopax.numerics.vector_functions.arithmetic import (
    SHIFT,
    SIGN_BIT,
    bits,
    compiled,
    compiled_as_written,
    exact_product,
    exact_sum,
    from_bits,
    fused,
    nearest_integer,
    polynomial,
    table,
)

_PI = (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33)
_LARGE_BITS = 24
_ROW_BITS = 8
_BITS = 1200
_ONE_OVER_PI = int(  # times 2^1200
    "517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e9700324977504e8c90e7f0ef58e"
    "5894d39f74411afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d8ffc4bffef02cc07f79788c5ad05368f"
    "b69b3f6793e584dba7a31fb34f2ff516ba93dd63f5f2f8bd9e839cfbc529497535fdafd88fc6ae842b0198237e3d",
    16,
)
# (sin(sqrt(z)) / sqrt(z) - 1) / z for z up to (pi / 2)^2
_SINE = polynomial(
    -0.16666666666666666,
    0.00833333333333324,
    -0.00019841269841221627,
    2.7557319212728634e-06,
    -2.5052106979622296e-08,
    1.6058943500654522e-10,
    -7.643056834682939e-13,
    2.7215733439446066e-15,
)


def _row(j: int) -> tuple[float, float, float]:
    """``2^(8 j) / pi`` modulo 2, in three parts."""
    turns = Fraction((_ONE_OVER_PI << _ROW_BITS * j) % (2 << _BITS), 1 << _BITS)
    remainder, parts = turns - 2 if turns > 1 else turns, []
    for _ in range(3):
        parts.append(float(remainder))
        remainder -= Fraction(parts[-1])
    return parts[0], parts[1], parts[2]


_ROWS = (1023 - 52) // _ROW_BITS + 1
_DIGITS = table("loopax.one_over_pi", [x for j in range(_ROWS) for x in _row(j)])


@compiled_as_written
def _half_turns(x: float, offset: float) -> tuple[int, float]:
    """``n``, in the low bits, and ``r`` with ``x = (n + offset) pi + r``; ``x`` from ``2^24`` on."""
    row = ((bits(x) >> 52) - (1023 + 52)) >> 3
    row = row if row > 0 else 0
    # An integer below 2^60, where digits are left out.
    x *= from_bits((1023 - _ROW_BITS * row) << 52)
    at = 3 * row
    high, fraction = exact_product(x, _DIGITS(at))
    middle, last = exact_product(x, _DIGITS(at + 1))
    high -= 2.0 * nearest_integer(0.5 * high)
    fraction, lost = exact_sum(fraction, middle)  # both below 2^7
    total, also_lost = exact_sum(high, fraction)
    shifted = (total - offset) + SHIFT
    total -= (shifted - SHIFT) + offset
    low = (lost + also_lost) + (last + x * _DIGITS(at + 2))
    high = total + low
    low = (total - high) + low
    return bits(shifted), fused(high, _PI[0], high * _PI[1] + low * _PI[0])


@compiled
def _sine(x: float, offset: float) -> float:
    """``sin(x - offset pi)`` for an ``x`` that is not negative."""
    shifted = (x * (1 / math.pi) - offset) + SHIFT
    n = (shifted - SHIFT) + offset
    odd = bits(shifted)
    r = fused(-n, _PI[2], fused(-n, _PI[1], fused(-n, _PI[0], x)))
    if (x >= 2.0**_LARGE_BITS) & (x < math.inf):
        odd, r = _half_turns(x, offset)
    z = r * r
    return from_bits(bits(r + r * z * _SINE(z)) ^ (odd << 63))


@compiled
def sin(x: float) -> float:
    return from_bits(bits(_sine(abs(x), 0.0)) ^ (bits(x) & SIGN_BIT))


@compiled
def cos(x: float) -> float:
    # By the polynomial, the cosine of 0 would be the number before 1.
    return 1.0 if abs(x) < 2.0**-27 else -_sine(abs(x), 0.5)


FUNCTIONS = {f.__name__: f for f in (sin, cos)}
