"""``poly_gamma``: the derivatives of the logarithm of the gamma function, of any order.

    poly_gamma(n, x) = (-1)^(n + 1) n! zeta(n + 1, x)        n = 1, 2, ...

Hurwitz's zeta function is summed up to a term, and the remainder comes from the Euler-Maclaurin formula, as
in Cephes and SciPy.
"""

from __future__ import annotations

import math

import numpy as np

from loopax.base.compiling.pipeline import njit_inner
from loopax.numerics.vector_functions.gamma_functions import psi

# (2 k)! / B(2 k), with the Bernoulli numbers B
_TERMS = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
    1.8152105401943546773e17,
    -7.1661652561756670113e18,
)
_EPSILON = 1.1102230246251565e-16


@njit_inner(error_model="numpy")
def _zeta(s: float, q: float) -> float:
    """The sum of ``(q + k) ** -s`` over k = 0, 1, ..., for an integer ``s`` of at least 2."""
    if q != q:
        return np.nan
    if q <= 0.0 and q == np.floor(q):
        return np.inf
    if q > 1e8:
        return (1.0 / (s - 1.0) + 1.0 / (2.0 * q)) * q ** (1.0 - s)
    total = q**-s
    w, b, k = q, 0.0, 0
    while k < 9 or w <= 9.0:
        k += 1
        w += 1.0
        b = w**-s
        total += b
        if abs(b / total) < _EPSILON:
            return total
    total += b * w / (s - 1.0) - 0.5 * b
    rising, shift = 1.0, 0.0
    for term in _TERMS:
        rising *= s + shift
        b /= w
        increment = rising * b / term
        total += increment
        if abs(increment / total) < _EPSILON:
            break
        rising *= s + shift + 1.0
        b /= w
        shift += 2.0
    return total


@njit_inner(error_model="numpy")
def poly_gamma(n: float, x: float) -> float:
    if n == 0.0:
        return psi(x)
    if n < 0.0:
        return np.nan
    factorial = math.gamma(n + 1.0) if n <= 170.0 else np.inf
    value = factorial * _zeta(n + 1.0, x)
    return value if n % 2.0 == 1.0 else -value


FUNCTIONS = {"poly_gamma": poly_gamma}
