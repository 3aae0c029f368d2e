"""Derivatives of special functions where PyTensor's are NaN, wrong or missing: series, ends and tails.

Each function takes the inputs and the output, and returns a derivative for each input
(`loopax.ir.derivatives.rules.elementwise`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import and_
from typing import Any, cast

import numpy as np
import pytensor.scalar.basic as ps
import pytensor.tensor as pt
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import hyp2f1
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.rules.registry import own_pullback
from loopax.ir.derivatives.rules.scalar_loops import values_and_tangents

_RADIUS = 0.995  # here the terms fall to a millionth of a percent in some 8,000 steps
_FAR = 30.0  # deviations at which the density is 0 in float64
_SERIES = 100.0  # where three terms of it are exact
_PARAMETER = 30.0  # with a larger parameter the terms may cancel, if they have several signs
_MOST_TERMS = 100_000


def erf_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivative of ``erf``: 0 in the tails, to all orders; PyTensor's are infinity times 0."""
    (x,) = inputs
    is_far = abs(x) > _FAR
    density = pt.exp(-(pt.switch(is_far, 0, x) ** 2))
    return [pt.switch(is_far, 0, np.array(2 / np.sqrt(np.pi), y.type.dtype) * density)]


def erfc_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivative of ``erfc``."""
    return [-slope for slope in erf_slopes(inputs, y)]


def erfcx_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivative ``2 x erfcx(x) - 2 / sqrt(pi)`` of ``erfcx``.

    In the tail the two terms cancel, and the difference is the remainder of a series
    (`loopax.numerics.special.normal_tails`).
    """
    (x,) = inputs
    is_far = x > _SERIES
    twice = np.array(2 / np.sqrt(np.pi), y.type.dtype)
    z = (1 / pt.switch(is_far, x, _SERIES)) ** 2
    remainder = -z * (1 - 1.5 * z * (1 - 2.5 * z)) * (twice / 2)
    near = 2 * pt.switch(is_far, 0, x) * y - twice
    return [pt.switch(is_far, remainder, near).astype(y.type.dtype)]


def ndtri_exp_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivative of ``ndtri_exp``: the distribution function over the density.

    In PyTensor's ``exp(x + y**2 / 2)`` the terms cancel in the tail.
    """
    root = np.array(np.sqrt(np.pi / 2), y.type.dtype)
    return [root * pt.erfcx(-y / np.array(np.sqrt(2), y.type.dtype))]


def owens_t_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivatives of ``owens_t(h, a)``; for an infinite ``a`` they are derivatives of a normal tail."""
    h, a = inputs
    is_endless = pt.isinf(a)
    slope = pt.switch(is_endless, 1, a)
    side = pt.sign(pt.switch(is_endless, a, 0)) * pt.switch(h >= 0, 1, -1)
    share = pt.switch(is_endless, side, pt.erf(slope * h / np.sqrt(2)))
    by_h = -pt.exp(-(h**2) / 2) * share / (2 * np.sqrt(2 * np.pi))
    squares = slope**2 + 1
    by_a = pt.switch(is_endless, 0, pt.exp(-squares * h**2 / 2) / (2 * np.pi * squares))
    return [by_h.astype(y.type.dtype), by_a.astype(y.type.dtype)]


def arccosh_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivative of ``arccosh``: NaN below -1, as the value is, and without squaring ``x``."""
    (x,) = inputs
    return [1 / (pt.sqrt(x - 1) * pt.sqrt(x + 1))]


def times_log(exponent: Any, log: Any) -> Any:
    """The logarithm of a power; 0 for 0**0, which varies with neither base nor exponent."""
    return pt.switch(pt.eq(exponent, 0) & pt.isinf(log), 0, exponent * log)


def hyp2f1_slopes(inputs: Sequence[Any], y: Any) -> list[Any]:
    """The derivatives of ``hyp2f1(a, b, c, z)``.

    With respect to a, b and c they are derivatives of the series of
    `loopax.numerics.special.hypergeometric`, whose own derivatives are right. PyTensor takes the logarithms
    of the terms: its sums end at the first term that is 0, and its second derivatives are 0 where z is 0.
    """
    a, b, c, z = (pt.second(y, x).astype(y.type.dtype) for x in inputs)
    negative = z < 0
    at = pt.switch(negative, z / (pt.switch(negative, z, 0) - 1), z)
    second = pt.switch(negative, c - b, b)
    is_small = reduce(and_, (pt.le(abs(x), _PARAMETER) for x in (a, second, c)))
    has_one_sign = reduce(and_, (x > 0 for x in (a, second, c)))
    is_short = pt.le(_terms(a, second, c, at), _MOST_TERMS)
    easy = pt.le(at, _RADIUS) & pt.ge(at, 0) & ((c > 0) | pt.neq(c, pt.floor(c)))
    easy &= is_small | (has_one_sign & is_short) | pt.eq(at, 0)
    # Where the power underflows, its product with the series may not be 0.
    log_of_least = np.log(np.finfo(y.type.dtype).tiny).astype(y.type.dtype)
    easy &= -a * pt.log1p(pt.switch(negative, -z, 0)) > log_of_least
    half = np.array(0.5, y.type.dtype)
    total, size, by_first, by_second, by_third = _sum(
        *(pt.switch(easy, x, half) for x in (a, second, c, at))
    )
    below = pt.switch(negative & easy, z, 0)
    power = (1 - below) ** -pt.switch(easy, a, half)
    by_series = (
        by_first - pt.log1p(-below) * total,
        pt.switch(negative, -by_second, by_second),
        pt.switch(negative, by_second + by_third, by_third),
    )
    error = size * np.sqrt(np.finfo(y.type.dtype).eps)  # half of the digits
    is_known = [error <= pt.maximum(abs(total), abs(slope)) for slope in by_series]
    # Near 1 PyTensor's sum is right if its terms have one sign. It takes no steps where z is 0.
    is_theirs = has_one_sign & ~easy & (at < 1)
    elsewhere = _own_slopes([a, b, c, pt.switch(is_theirs, z, 0)])[:3]
    return [
        *(
            pt.switch(
                easy,
                power * slope * pt.switch(known, 1, np.nan),
                pt.switch(is_theirs, other, np.nan),
            ).astype(y.type.dtype)
            for slope, known, other in zip(by_series, is_known, elsewhere, strict=True)
        ),
        a * b / c * pt.hyp2f1(a + 1, b + 1, c + 1, z),
    ]


def _sum(a: Any, b: Any, c: Any, at: Any) -> list[Any]:
    """The series of ``2F1``, the sum of its absolute terms, and its derivatives in a, b and c."""
    dtype = at.type.dtype
    op = _series(dtype)
    starts = [pt.constant(np.array(x, dtype)) for x in (1, 1, 0)]
    inputs = [_terms(a, b, c, at).astype("int32") + 40, *starts, a, b, c, at]
    places = range(len(starts) + 1, len(inputs) - 1)
    outs, tangents = values_and_tangents(op, inputs, [{k: pt.ones_like(at)} for k in places])
    absolute: Any = Elemwise(_series(dtype, is_absolute=True))(*inputs, return_list=True)
    return [outs[1], absolute[1], *(t[1] for t in tangents)]


def _terms(a: Any, b: Any, c: Any, at: Any) -> Any:
    """The number of terms of the series, less 40."""
    # The ratio of two terms is about (1 + (a + b - c - 1) / n) at, and tends to `at`.
    growth = pt.maximum(abs(a) + abs(b) - c, 0)
    lengths = (40 + 7 * growth) / -pt.log(pt.clip(at, 1e-30, _RADIUS))
    return pt.switch(pt.eq(at, 0), 0, lengths)


@cache
def _series(dtype: str, is_absolute: bool = False) -> ScalarLoop:
    """The loop over the terms: no condition ends it, since a term may be 0 and its derivative not."""
    variables: list[Any] = [ps.get_scalar_type(dtype)() for _ in range(7)]
    term, total, n, a, b, c, at = variables
    one = ps.constant(np.array(1, dtype))
    following = term * ((a + n) * (b + n) / ((c + n) * (n + one)) * at)
    summand = ps.abs(following) if is_absolute else following
    update = [following, total + summand, n + one]
    return ScalarLoop([term, total, n], update, constant=[a, b, c, at], name="hyp2f1")


def _own_slopes(inputs: Sequence[Any]) -> Sequence[Any]:
    """PyTensor's derivatives of ``hyp2f1``, broadcast to the output's shape."""
    elementwise = Elemwise(hyp2f1)
    outs = elementwise.make_node(*inputs).outputs
    return own_pullback(elementwise, inputs, outs, [pt.ones_like(cast(TensorVariable, outs[0]))])
