"""Derivatives of elementwise functions that are wrong at one point in PyTensor, or missing.

They can be differentiated again at that point, like the derivatives of JAX's operations in
`loopax.jax_backend.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar.math
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import ArcCosh, ArcTan2, Clip, Conj, Pow, Sign, Switch
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import (
    BetaInc,
    Erf,
    Erfc,
    Erfcx,
    GammaInc,
    GammaIncC,
    Hyp2F1,
    Log1mexp,
    Owens_t,
)
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import describe
from loopax.base.upstream.pytensor import ComplexFromPolar
from loopax.facts.scalars import is_real
from loopax.ir.derivatives.rules.incomplete_beta import betainc_slopes
from loopax.ir.derivatives.rules.incomplete_gammas import gammainc_slopes, gammaincc_slopes
from loopax.ir.derivatives.rules.registry import own_pullback, pullback_of, pushforward_of
from loopax.ir.derivatives.rules.scalar_loops import loop_slopes, loop_tangents
from loopax.ir.derivatives.rules.special_functions import (
    arccosh_slopes,
    erf_slopes,
    erfc_slopes,
    erfcx_slopes,
    hyp2f1_slopes,
    ndtri_exp_slopes,
    owens_t_slopes,
)

# The derivatives with respect to all inputs, as a function of the inputs and the output.
_Slopes = Callable[[Sequence[Any], Any], Sequence[Any]]


def _base_slope(inputs: Sequence[TensorVariable]) -> Any:
    """The derivative of a power with respect to its base: 0 for exponent 0, where PyTensor's is nan at 0.

    If the exponent is differentiable itself, only the base 0 is an exception: at other bases the derivative
    of this result with respect to the exponent is ``1 / x`` at the exponent 0.
    """
    x, exponent = inputs
    if exponent.type.dtype == "int8":  # -128 - 1 is 127
        exponent = exponent.astype("int16")
    if isinstance(exponent, Constant):
        reduced: Any = np.where(exponent.data == 0, 0, exponent.data - 1).astype(
            exponent.data.dtype
        )
    elif exponent.type.dtype in discrete_dtypes:
        reduced = pt.switch(pt.eq(exponent, 0), 0, exponent - 1).astype(exponent.type.dtype)
    else:
        is_exception = pt.eq(exponent, 0) & pt.eq(x, 0)
        reduced = pt.switch(is_exception, 1, exponent - 1).astype(exponent.type.dtype)
    return exponent * x**reduced


def _exponent_slope(inputs: Sequence[Variable], y: Variable) -> Any:
    """The derivative of a power in its exponent: at base 0 it is 0, the limit for positive exponents."""
    x, _ = inputs
    is_zero = pt.eq(x, 0)
    return pt.switch(is_zero, 0, y * pt.log(pt.switch(is_zero, 1, x)))


def _log1mexp_slope(inputs: Sequence[Variable], y: TensorVariable) -> Any:
    """The derivative ``-exp(x) / (1 - exp(x))``: -inf at 0, as is its own derivative."""
    (x,) = inputs
    return -pt.exp(x) * pt.exp(-y)


def _angle_slopes(inputs: Sequence[TensorVariable]) -> tuple[Any, Any]:
    """The derivatives of ``arctan2``: 0 where the squares overflow and their own derivatives are nan."""
    y, x = inputs
    squares = y**2 + x**2
    is_small = pt.lt(squares, np.inf)
    squares = pt.switch(is_small, squares, 1)
    return pt.switch(is_small, x, 0) / squares, pt.switch(is_small, -y, 0) / squares


_SLOPES: dict[type, _Slopes] = {
    Pow: lambda inputs, y: (_base_slope(inputs), _exponent_slope(inputs, y)),
    Log1mexp: lambda inputs, y: (_log1mexp_slope(inputs, y),),
    ArcTan2: lambda inputs, angle: _angle_slopes(inputs),
    ArcCosh: arccosh_slopes,
    Erf: erf_slopes,
    Erfc: erfc_slopes,
    Erfcx: erfcx_slopes,
    BetaInc: betainc_slopes,
    GammaInc: gammainc_slopes,
    GammaIncC: gammaincc_slopes,
    Hyp2F1: hyp2f1_slopes,
    Owens_t: owens_t_slopes,
}
if hasattr(pytensor.scalar.math, "NdtriExp"):  # only some releases have it
    _SLOPES[pytensor.scalar.math.NdtriExp] = ndtri_exp_slopes


@pullback_of.register(Elemwise)
def _pullback(
    op: Elemwise,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    match op.scalar_op:
        case ScalarLoop():
            return _pull_back_loop(op, inputs, cotangents)
        case Conj():
            return [pt.conj(cotangents[0])]
        case ComplexFromPolar():
            return _pull_back_polar(inputs, cotangents[0])
        case Clip() if is_real(outputs[0]):
            return _pull_back_clip(inputs, cotangents[0])
        case Sign() if inputs[0].type.dtype.startswith("complex"):
            raise NotImplementedError(
                f"PyTensor gives 0 for the derivative of {describe(outputs[0])}, the sign of a complex "
                'number, and it is not 0. JAX has it: jax.grad(jaxify(..., loops="xla")).'
            )
    slopes = _slopes(op, inputs, outputs)
    if slopes is None:
        return own_pullback(op, inputs, outputs, cotangents)
    (y,), (g,) = outputs, cotangents
    return [
        disconnected_type() if not is_real(x) else summed(g * slope, x)
        for x, slope in zip(inputs, slopes(_in_dtype_of(y, inputs, op), y), strict=True)
    ]


def _pull_back_clip(inputs: Sequence[Any], g: Variable) -> list[Any]:
    """Pass the cotangent to the one operand that ``clip`` returns.

    PyTensor's rule gives it to both bounds if the lower one is above the upper one.
    """
    x, low, high = inputs
    is_low, is_high = pt.lt(x, low), pt.gt(x, high)
    below = pt.switch(is_low, g, 0)
    inside, above = (pt.switch(is_low, 0, pt.switch(is_high, *pair)) for pair in ((0, g), (g, 0)))
    return [
        summed(share, v) if is_real(v) else disconnected_type()
        for v, share in zip(inputs, (inside, below, above), strict=True)
    ]


def _pull_back_polar(inputs: Sequence[Any], g: Variable) -> list[Any]:
    """The pullback of ``x = r cos(a)``, ``y = r sin(a)``; PyTensor's lacks conjugates, and is complex."""
    r, angle = inputs
    by_r = pt.real(g) * pt.cos(angle) + pt.imag(g) * pt.sin(angle)
    by_angle = r * (pt.imag(g) * pt.cos(angle) - pt.real(g) * pt.sin(angle))
    return [summed(by_r, r), summed(by_angle, angle)]


def _pull_back_loop(op: Elemwise, inputs: Sequence[Variable], cotangents: Sequence[Any]) -> Any:
    terms: list[list[Any]] = [[] for _ in inputs]
    for (out, k), slope in loop_slopes(op.scalar_op, inputs).items():
        if _is_connected(cotangents[out]):
            terms[k].append(cotangents[out] * slope)
    return [
        summed(pt.add(*products), x) if products else disconnected_type()
        for x, products in zip(inputs, terms, strict=True)
    ]


def _push_forward_loop(
    op: Elemwise,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> Any:
    connected = {k: t for k, t in enumerate(tangents) if _is_connected(t)}
    moving = loop_tangents(op.scalar_op, inputs, connected)
    return [moving.get(k, disconnected_type()) for k in range(len(outputs))]


def _push_forward_choice(
    op: Elemwise, inputs: Sequence[Any], output: Variable, tangents: Sequence[Any]
) -> Any:
    """The tangent of the selected operand.

    PyTensor multiplies the other tangents by 0, which is NaN where one of them is infinite or NaN, as in
    ``switch(x > 0, log(x), 0)`` at 0.
    """
    n_tests = 1 if isinstance(op.scalar_op, Switch) else 0
    numbers, moving = inputs[n_tests:], tangents[n_tests:]
    if not any(map(_is_connected, moving)):
        return [disconnected_type()]
    complete = [
        t if _is_connected(t) else v.zeros_like(dtype=output.type.dtype)
        for v, t in zip(numbers, moving, strict=True)
    ]
    if n_tests:
        return [pt.switch(inputs[0], *complete)]
    (x, low, high), (inside, below, above) = inputs, complete
    return [pt.switch(pt.lt(x, low), below, pt.switch(pt.gt(x, high), above, inside))]


@pushforward_of.register(Elemwise)
def _pushforward(
    op: Elemwise,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> Any:
    if isinstance(op.scalar_op, ScalarLoop):
        return _push_forward_loop(op, inputs, outputs, tangents)
    if isinstance(op.scalar_op, Switch | Clip):
        return _push_forward_choice(op, inputs, outputs[0], tangents)
    slopes = _slopes(op, inputs, outputs)
    if slopes is None:
        return op.pushforward(inputs, outputs, tangents)
    (y,) = outputs
    terms = [
        slope * t
        for x, slope, t in zip(
            inputs, slopes(_in_dtype_of(y, inputs, op), y), tangents, strict=True
        )
        if is_real(x) and _is_connected(t)
    ]
    return [pt.add(*terms) if terms else disconnected_type()]


def _slopes(
    op: Elemwise, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> _Slopes | None:
    """The derivatives; None where the op's own rule applies, as for complex numbers and integers."""
    is_complex = any(v.type.dtype.startswith("complex") for v in inputs)
    return None if is_complex or not is_real(outputs[0]) else _SLOPES.get(type(op.scalar_op))


def _in_dtype_of(y: Variable, inputs: Sequence[Any], op: Elemwise) -> list[Any]:
    """Cast ``inputs`` to the dtype of ``y``, in which the op computes: the square of a uint8 may overflow.

    An integer exponent stays, since powers have specialized code for it.
    """
    dtype = y.type.dtype
    is_power = isinstance(op.scalar_op, Pow)
    return [
        x if is_power and k == 1 and x.type.dtype in discrete_dtypes else x.astype(dtype)
        for k, x in enumerate(inputs)
    ]


def _is_connected(derivative: Variable) -> bool:
    return not isinstance(derivative.type, DisconnectedType)


def summed(g: TensorVariable, x: Variable) -> Any:
    """Sum ``g`` over the axes along which ``x`` was broadcast."""
    extra = g.type.ndim - x.type.ndim
    g = g.sum(axis=tuple(range(extra))) if extra else g
    axes = [k for k, n in enumerate(x.type.shape) if n == 1 and g.type.shape[k] != 1]
    return g.sum(axis=axes, keepdims=True) if axes else g
