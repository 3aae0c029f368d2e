"""Floor division, remainders, and powers of integers, with NumPy's values where Numba's differ.

In Numba ``inf // 2`` is infinity and ``-1 // inf`` is -0.0, where NumPy has nan and -1; its powers of
unsigned integers go through floats.
"""

from __future__ import annotations

import numpy as np

from loopax.base.compiling.pipeline import njit_inner


@njit_inner(error_model="numpy")
def floor_divide(x: float, y: float) -> float:
    """`numpy.floor_divide` by the exact remainder, so that the quotient is rounded once."""
    if y == 0:
        return x / y
    exact_remainder = np.fmod(x, y)
    quotient = (x - exact_remainder) / y
    if exact_remainder != 0 and (y < 0) != (exact_remainder < 0):
        quotient -= 1
    if quotient == 0:
        return np.copysign(0.0, x / y)
    whole = np.floor(quotient)
    return whole + 1 if quotient - whole > 0.5 else whole


@njit_inner(error_model="numpy")
def remainder(x: float, y: float) -> float:
    """`numpy.remainder`, with the sign of ``y``, for zeros too."""
    if y == 0:
        return np.nan
    exact_remainder = np.fmod(x, y)
    if exact_remainder == 0:
        return np.copysign(0.0, y)
    return exact_remainder + y if (y < 0) != (exact_remainder < 0) else exact_remainder


@njit_inner
def int_power(x: int, y: int) -> np.uint64:
    """``x**y`` modulo ``2**64``; negative powers are truncated to integers, as in C."""
    if y < 0:
        if x == 1 or (x == -1 and y % 2 == 0):
            return np.uint64(1)
        return np.uint64(-1) if x == -1 else np.uint64(0)
    product, base, bits = np.uint64(1), np.uint64(x), np.uint64(y)
    while bits != 0:
        if bits & np.uint64(1):
            product *= base
        base *= base
        bits >>= np.uint64(1)
    return product


FUNCTIONS = {f.__name__: f for f in (floor_divide, remainder, int_power)}
