"""Tensors whose graphs show that all their rows are equal.

    alloc(v, n, k), second(x, v), alloc(v, n, k)[a:b]  ->  alloc(v, k)
    Constant of equal rows                             ->  Constant of one

Equal is bit by bit: NaN is equal to itself, and -0.0 is not 0.0.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Second
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.ir.batching.row_values import shared_row
from loopax.ir.ops.bounds import known_number
from loopax.ir.shapes import filled
from loopax.ir.sizes import Dims, read_of

_SMALL = 64  # elements of a row that is written out as a constant, not as an Alloc


def row_of(x: Variable, dims: Dims) -> Any:
    """The common row of ``x``; None where rows may differ, or there may be none."""
    if not isinstance(x.type, DenseTensorType):
        return None
    if isinstance(x, Constant):
        row = shared_row(x.data, 1)
        return None if row is None else pt.constant(np.array(row))
    op: Any = None if x.owner is None else x.owner.op
    if isinstance(op, Alloc):
        value, _, *shape = x.owner.inputs
        return _spread(without_leading(value, x.type.ndim), shape)
    if is_elementwise(x.owner, Second):
        like, value = x.owner.inputs
        return _filled(like, value, dims)
    read = read_of(x.owner)
    # A step of 0 raises. With a known step, a slice of equal rows has equal rows.
    if read is not None and not (read.is_row or read.trailing) and _is_step(read.rows.step):
        return row_of(read.array, dims)
    return None


def _is_step(step: Variable | None) -> bool:
    return step is None or (isinstance(step, Constant) and bool(step.data))


def without_leading(value: TensorVariable, ndim: int) -> Any:
    """View ``value``, with at most ``ndim`` axes, as one row; None where it varies along the rows."""
    if value.type.ndim < ndim:
        return value
    if value.type.shape[0] != 1:
        return None
    if isinstance(value, Constant):
        return pt.constant(np.array(value.data[0]))
    if value.owner is not None and isinstance(value.owner.op, DimShuffle):
        x, (first, *order) = value.owner.inputs[0], value.owner.op.new_order
        if first == "x" and order == list(range(x.type.ndim)):
            return x
        if isinstance(x, Constant) and x.data.size == 1:
            return pt.constant(x.data.reshape((1,) * (ndim - 1)))
    return value.dimshuffle(*range(1, ndim))


def _spread(value: Variable | None, dims: list[Variable]) -> Any:
    if value is None:
        return None
    static = [*map(known_number, dims)]
    known = tuple(n for n in static if n is not None)
    if len(known) < len(dims):
        return filled(value, dims)
    if value.type.shape == known:
        return value
    if isinstance(value, Constant) and prod(known) <= _SMALL:
        return pt.constant(np.broadcast_to(value.data, known).copy())
    return filled(value, dims)


def _filled(like: TensorVariable, value: TensorVariable, dims: Dims) -> Any:
    """The row of ``second(like, value)``."""
    value = without_leading(value, value.type.ndim)
    if value is None or like.type.shape[0] == 1:
        return None
    shape: list[Any] = []
    for k, n in enumerate(value.type.shape):
        from_value = like.type.shape[k + 1] == 1
        if n != 1 and not from_value and dims.length(like, k + 1) != dims.length(value, k):
            return None  # raises where the lengths differ
        x, axis = (value, k) if from_value else (like, k + 1)
        static = x.type.shape[axis]
        shape.append(x.shape[axis] if static is None else pt.constant(static, dtype="int64"))
    return _spread(value, shape)
