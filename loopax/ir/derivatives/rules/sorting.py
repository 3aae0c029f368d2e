"""The rule of sorting, for PyTensor before 3.3, whose own reads the axis as a constant.

There the axis is an input, which is no constant in a `Blockwise` or a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.sort import SortOp
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.rules.registry import own_pullback, pullback_of


@pullback_of.register(SortOp)
def _sort(
    op: SortOp,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Any],
) -> Any:
    """Each element has the cotangent of the place to which it was moved."""
    if len(inputs) == 1:  # the axis belongs to the op
        return own_pullback(op, inputs, outputs, cotangents)
    (x, axis), (g,) = inputs, cotangents
    n = x.type.ndim
    order = pt.argsort(x, axis=axis, kind=op.kind)
    places = pt.argsort(order, axis=axis, kind=op.kind)
    axes = [int(axis.data) % n] if isinstance(axis, Constant) else range(n)
    by_axis = [g[tuple(places if j == k else _line(x, j) for j in range(n))] for k in axes]
    moved = by_axis[0]
    for k, other in enumerate(by_axis[1:], start=1):
        moved = pt.switch(pt.eq(axis % n, k), other, moved)
    return [moved, disconnected_type()]


def _line(x: TensorVariable, axis: int) -> Any:
    """The positions along an axis of ``x``, which broadcast against it."""
    line: Any = pt.arange(x.shape[axis])
    return line.reshape([-1 if k == axis else 1 for k in range(x.type.ndim)])
