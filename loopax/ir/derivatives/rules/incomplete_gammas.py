"""Derivatives of the incomplete gamma functions, with respect to their shape, too.

PyTensor's derivatives in the shape are wrong in 3.0.7, by 15 % where shape and argument are 30. These are
the derivatives of a power series (DLMF 8.7.1) where the argument is small, and otherwise of the continued
fraction of the upper function (DLMF 8.9.2) in Lentz's method. At an integer shape the fraction terminates
and its derivative does not: each loop carries both, and runs until both converge.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytensor.scalar.basic as ps
import pytensor.tensor as pt
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from loopax.ir.derivatives.rules.special_functions import times_log

_MOST_STEPS = 100_000  # a shape of 1e8 and an equal argument take that many terms


def gammainc_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivatives of the lower function ``gammainc(k, x)``."""
    k, x = (pt.second(y, v).astype(y.type.dtype) for v in inputs)
    is_inside = (k >= 0) & (x > 0) & pt.lt(k, np.inf) & pt.lt(x, np.inf)
    is_small = x <= pt.maximum(k, 1)
    inside = pt.switch(
        is_small, _by_series(is_inside & is_small, k, x), -_by_fraction(is_inside & ~is_small, k, x)
    )
    outside = pt.switch((k >= 0) & (x >= 0), 0, np.nan)
    by_shape = pt.switch(is_inside, inside, outside)
    return [by_shape.astype(y.type.dtype), _density(k, x).astype(y.type.dtype)]


def gammaincc_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivatives of the upper function ``gammaincc(k, x)``."""
    return [-slope for slope in gammainc_slopes(inputs, y)]


def _density(k: Any, x: Any) -> Any:
    """The density of the gamma distribution. In PyTensor's formula, zeros meet infinities at both ends."""
    is_constant = pt.eq(x, np.inf) | (pt.eq(k, 0) & (x > 0))
    power = times_log(k - 1, pt.log(pt.switch(is_constant, 1, x)))
    inside = pt.switch(is_constant, 0, pt.exp(power - x - pt.gammaln(k)))
    return pt.switch((k >= 0) & (x >= 0), inside, np.nan)


def _by_series(where: Any, k: Any, x: Any) -> Any:
    """The derivative of ``gammainc`` in ``k``, where the terms of its series decrease from the start."""
    k, x = (pt.switch(where, v, 1) for v in (k, x))
    one, zero = pt.ones_like(x), pt.zeros_like(x)
    total, slope, *_, has_ended = _run(_series(x.type.dtype), where, [one, zero, one, zero, k], x)
    log_x = pt.log(x)
    factor = pt.exp(k * log_x - x - pt.gammaln(k + 1))
    return pt.switch(has_ended, factor * (total * (log_x - pt.psi(k + 1)) + slope), np.nan)


def _by_fraction(where: Any, k: Any, x: Any) -> Any:
    """The derivative of ``gammaincc`` in ``k``, where ``x`` is more than 1 and more than ``k``."""
    k, x = pt.switch(where, k, 1), pt.switch(where, x, 2)
    dtype = x.type.dtype
    zero, endless = pt.zeros_like(x), pt.full_like(x, 0.1 * np.sqrt(np.finfo(dtype).max))
    start = 1 / (x + 1 - k)
    states = [start, start**2, endless, zero, start, start**2, zero]
    value, slope, *_, has_ended = _run(_fraction(dtype), where, states, k, x)
    log_x = pt.log(x)
    # 1 / gamma(k) as k / gamma(k + 1), which is right at the shape 0 as well.
    factor = pt.exp(k * log_x - x - pt.gammaln(k + 1))
    rise = value + k * (value * (log_x - pt.psi(k + 1)) + slope)
    return pt.switch(has_ended, factor * rise, np.nan)


def _run(op: ScalarLoop, where: Any, states: Sequence[Any], *constants: Any) -> list[Any]:
    lengths = pt.switch(where, _MOST_STEPS, 0).astype("int32")
    outs: Any = Elemwise(op)(lengths, *states, *constants, return_list=True)
    return list(outs)


@cache
def _series(dtype: str) -> ScalarLoop:
    """The loop over the terms ``x**n / ((k + 1) ... (k + n))``."""
    total, slope, term, term_slope, place, x = (ps.get_scalar_type(dtype)() for _ in range(6))
    least = np.array(np.finfo(dtype).eps, dtype)
    following = place + np.array(1, dtype)
    ratio = x / following
    new_slope = ratio * (term_slope - term / following)
    new_term = term * ratio
    states = [total + new_term, slope + new_slope, new_term, new_slope, following]
    is_end = (new_term <= least * states[0]) & (ps.abs(new_slope) <= least * ps.abs(states[1]))
    return ScalarLoop(
        init=[total, slope, term, term_slope, place],
        update=states,
        constant=[x],
        until=is_end,
        name="gammainc_series",
    )


@cache
def _fraction(dtype: str) -> ScalarLoop:
    """The loop over the convergents of ``1 / (b0 + a1 / (b1 + ...))``, and their derivatives in ``k``.

    Here ``a_n`` is ``n * (k - n)`` and ``b_n`` is ``x + 1 - k + 2 * n``.
    """
    scalars: list[Any] = [ps.get_scalar_type(dtype)() for _ in range(9)]
    value, slope, c, c_slope, d, d_slope, n, k, x = scalars
    one, two, least = (np.array(v, dtype) for v in (1, 2, np.finfo(dtype).eps))
    m = n + one
    a, b = m * (k - m), x + one - k + two * m  # their derivatives: m, and -1
    new_d = one / (b + a * d)
    new_d_slope = (one - m * d - a * d_slope) * new_d * new_d
    new_c = b + a / c
    new_c_slope = (m - a * (c_slope / c)) / c - one
    ratio = new_c * new_d
    ratio_slope = new_c_slope * new_d + new_c * new_d_slope
    new_value = value * ratio
    step = value * ratio_slope
    new_slope = slope * ratio + step
    is_end = (ps.abs(ratio - one) <= two * least) & (
        ps.abs(step) <= two * least * (new_value + ps.abs(new_slope))
    )
    return ScalarLoop(
        init=[value, slope, c, c_slope, d, d_slope, n],
        update=[new_value, new_slope, new_c, new_c_slope, new_d, new_d_slope, m],
        constant=[k, x],
        until=is_end,
        name="gammaincc_fraction",
    )
