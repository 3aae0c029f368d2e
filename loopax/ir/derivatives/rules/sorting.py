"""The pullback of sorting for PyTensor before 3.3, whose own rule requires a constant axis.

There the axis is an input, which is not a constant inside a `Blockwise` or a loop.
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
    """Return each element's cotangent from the position that it was sorted to."""
    if len(inputs) == 1:  # the axis belongs to the op
        return own_pullback(op, inputs, outputs, cotangents)
    (x, axis), (g,) = inputs, cotangents
    n = x.type.ndim
    order = pt.argsort(x, axis=axis, kind=op.kind)
    places = pt.argsort(order, axis=axis, kind=op.kind)
    axes = [int(axis.data) % n] if isinstance(axis, Constant) else range(n)
    moved, *others = (pt.take_along_axis(g, places, axis=k) for k in axes)
    for k, other in enumerate(others, start=1):
        moved = pt.switch(pt.eq(axis % n, k), other, moved)
    return [moved, disconnected_type()]
