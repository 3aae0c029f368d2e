"""Derivatives of elementwise functions whose derivatives PyTensor has wrong at one point.

They are written so that they can be differentiated again at that point, as those of JAX's operations are in
`loopax.jax_backend.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Pow
from pytensor.scalar.math import Log1mexp
from pytensor.tensor.elemwise import Elemwise

from loopax.ir.derivatives.rules.broadcasting import summed
from loopax.ir.derivatives.rules.registry import own_pullback, pullback_of, pushforward_of

# The derivatives for each input, functions of the inputs and the output.
_Slopes = Sequence[Callable[[Sequence[Any], Any], Any]]


def _of_base(inputs: Sequence[Any], y: Any) -> Any:
    """0 where the exponent is 0, whatever x is: x**0 is 1. PyTensor has 0 * 0**-1 at 0, which is nan."""
    x, exponent = inputs
    if isinstance(exponent, Constant):
        less: Any = np.where(exponent.data == 0, 1, exponent.data - 1).astype(exponent.data.dtype)
    else:
        less = pt.switch(pt.eq(exponent, 0), 1, exponent - 1).astype(exponent.type.dtype)
    return exponent * x**less


def _of_exponent(inputs: Sequence[Any], y: Any) -> Any:
    """0 where x is 0, as PyTensor has it: the limit where the exponent is positive."""
    x, _ = inputs
    is_zero = pt.eq(x, 0)
    return pt.switch(is_zero, 0, y * pt.log(pt.switch(is_zero, 1, x)))


def _of_log1mexp(inputs: Sequence[Any], y: Any) -> Any:
    """``-exp(x) / (1 - exp(x))``, which is -inf at 0, and whose own derivative is."""
    (x,) = inputs
    return -pt.exp(x) * pt.exp(-y)


_SLOPES: dict[type, _Slopes] = {Pow: (_of_base, _of_exponent), Log1mexp: (_of_log1mexp,)}


@pullback_of.register(Elemwise)
def _pullback(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    slopes = _slopes(op, inputs, outputs)
    if slopes is None:
        return own_pullback(op, inputs, outputs, cotangents)
    (y,), (g,) = outputs, cotangents
    return [
        disconnected_type() if not _is_float(x) else summed(g * slope(inputs, y), x)
        for x, slope in zip(inputs, slopes, strict=True)
    ]


@pushforward_of.register(Elemwise)
def _pushforward(op: Any, inputs: Any, outputs: Any, tangents: Any) -> Any:
    slopes = _slopes(op, inputs, outputs)
    if slopes is None:
        return op.pushforward(inputs, outputs, tangents)
    (y,) = outputs
    parts = [
        slope(inputs, y) * t
        for x, slope, t in zip(inputs, slopes, tangents, strict=True)
        if _is_float(x) and not isinstance(t.type, DisconnectedType)
    ]
    return [pt.add(*parts) if parts else disconnected_type()]


def _slopes(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> _Slopes | None:
    """Our slopes; None where the op's own are used, which are those of complex numbers and integers."""
    is_complex = any(v.type.dtype.startswith("complex") for v in inputs)
    return None if is_complex or not _is_float(outputs[0]) else _SLOPES.get(type(op.scalar_op))


def _is_float(v: Any) -> bool:
    return bool(v.type.dtype.startswith("float"))
