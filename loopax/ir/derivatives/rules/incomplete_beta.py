"""Derivatives of the regularized incomplete beta function, in its parameters too.

PyTensor's derivatives in the parameters have errors of 1e-6 where ``a`` is small, and NaN for some. These
are the derivatives of the continued fraction (DLMF 8.17.22) in Lentz's method, on the side of the mean on
which it converges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytensor.scalar.basic as ps
import pytensor.tensor as pt
from pytensor.scalar.loop import ScalarLoop

from loopax.ir.derivatives.rules.scalar_loops import values_and_tangents
from loopax.ir.derivatives.rules.special_functions import times_log

_MOST_STEPS = 100_000  # some ten times the root of the larger parameter
_MORE = 8  # tangents converge as fast as values, a few steps later


def betainc_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivatives of ``betainc(a, b, x)``: in a and b they are 0 where x is 0 or 1."""
    a, b, x = (pt.second(y, v).astype(y.type.dtype) for v in inputs)
    is_defined = (a > 0) & (b > 0) & pt.lt(a, np.inf) & pt.lt(b, np.inf)
    is_end = (pt.eq(x, 0) | pt.eq(x, 1)) & (a > 0) & (b > 0)
    is_inside = is_defined & (x > 0) & (x < 1)
    is_mirrored = x > (a + 1) / (a + b + 2)
    p, q = pt.switch(is_mirrored, b, a), pt.switch(is_mirrored, a, b)
    z = pt.switch(is_mirrored, 1 - x, x)
    half = np.array(0.5, y.type.dtype)
    by_p, by_q = _by_fraction(*(pt.switch(is_inside, v, half) for v in (p, q, z)))
    slopes = pt.switch(is_mirrored, -by_q, by_p), pt.switch(is_mirrored, -by_p, by_q)
    outside = pt.switch(is_end, 0, np.nan)
    by_parameters = [pt.switch(is_inside, slope, outside) for slope in slopes]
    powers = times_log(a - 1, pt.log(x)) + times_log(b - 1, pt.log1p(-x))
    density = pt.exp(powers - (pt.gammaln(a) + (pt.gammaln(b) - pt.gammaln(a + b))))
    return [slope.astype(y.type.dtype) for slope in (*by_parameters, density)]


def _by_fraction(p: Any, q: Any, z: Any) -> tuple[Any, Any]:
    """The derivatives of ``betainc(p, q, z)`` in ``p`` and ``q``, for a ``z`` left of the mean."""
    op = _fraction(z.type.dtype)
    one = pt.ones_like(z)
    first = [_first(p, q, z), _first(p, pt.floor(q) + 0.5, z)]
    lengths = pt.full_like(z, _MOST_STEPS, dtype="int32")
    starts = [first[0], one, first[0], one, first[1], one, _MORE * one]
    inputs = [lengths, *(v.astype(z.type.dtype) for v in starts), p, q, z]
    # The states at the start depend on p and q as well.
    share = z / (p + 1) * first[0] ** 2
    first_tangents = share * (1 - q) / (p + 1), share
    (value, *_, has_ended), tangents = values_and_tangents(
        op, inputs, [{1: t, 3: t, k: one} for k, t in zip((8, 9), first_tangents, strict=True)]
    )
    slopes = [t[0] for t in tangents]
    log_z, log_rest = pt.log(z), pt.log1p(-z)
    # The factor is 1 / (p B(p, q)) times powers. p Gamma(p) as Gamma(p + 1) is right for a small p.
    factor = pt.exp(
        p * log_z + q * log_rest - pt.gammaln(p + 1) - pt.gammaln(q) + pt.gammaln(p + q)
    )
    by_p = slopes[0] + value * (log_z - pt.psi(p + 1) + pt.psi(p + q))
    by_q = slopes[1] + value * (log_rest - pt.psi(q) + pt.psi(p + q))
    return tuple(pt.switch(has_ended, factor * slope, np.nan) for slope in (by_p, by_q))


def _first(p: Any, q: Any, z: Any) -> Any:
    """The first convergent, which is at least 1 left of the mean."""
    return 1 / (1 - (p + q) * z / (p + 1))


@cache
def _fraction(dtype: str) -> ScalarLoop:
    """The loop over the convergents, two in a step.

    Where ``q`` is an integer the fraction ends after ``q`` steps, and its derivatives do not. So a second
    fraction, for a number halfway between two integers, decides how many steps there are.
    """
    scalars: list[Any] = [ps.get_scalar_type(dtype)() for _ in range(10)]
    value, c, d, halfway_c, halfway_d, m, more, p, q, z = scalars
    one, half, two, least = (np.array(v, dtype) for v in (1, 0.5, 2, np.finfo(dtype).eps))
    tiny = np.array(np.finfo(dtype).tiny / np.finfo(dtype).eps, dtype)

    def away_from_zero(x: Any) -> Any:
        return ps.switch(ps.abs(x) < tiny, tiny, x)

    def two_terms(q: Any, c: Any, d: Any) -> tuple[Any, Any, Any]:
        place = p + two * m
        even = m * (q - m) * z / ((place - one) * place)
        odd = -(p + m) * (p + q + m) * z / (place * (place + one))
        factor: Any = one
        for term in (even, odd):
            d = one / away_from_zero(one + term * d)
            c = away_from_zero(one + term / c)
            factor = factor * c * d
        return c, d, factor

    new_c, new_d, factor = two_terms(q, c, d)
    halfway_c, halfway_d, halfway_factor = two_terms(ps.floor(q) + half, halfway_c, halfway_d)
    is_going = ps.abs(halfway_factor - one) > two * least
    new_more: Any = ps.switch(is_going, np.array(_MORE, dtype), more - one)
    is_end: Any = ps.le(new_more, np.array(0, dtype))
    return ScalarLoop(
        init=[value, c, d, *scalars[3:7]],
        update=[value * factor, new_c, new_d, halfway_c, halfway_d, m + one, new_more],
        constant=[p, q, z],
        until=is_end,
        name="betainc_fraction",
    )
