"""One row of what is computed from whole traces: ``2 * trace * other`` -> ``2 * row * other_row``.

The ops here work on every row by itself, so that a step of a loop can do for its row what they do
behind the loop for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise


def is_row_wise(node: Apply) -> bool:
    """Whether row ``t`` of the output of ``node`` follows from row ``t`` of its inputs.

    An input of one row, known to be one, stands for all rows.
    """
    op: Any = node.op
    if isinstance(op, Elemwise):
        return len(node.outputs) == 1 and node.outputs[0].type.ndim > 0
    if isinstance(op, DimShuffle):
        return bool(op.new_order) and op.new_order[0] == 0
    if isinstance(op, CAReduce):
        return op.axis is not None and 0 not in op.axis
    return False


def stands_for_all_rows(v: Any) -> bool:
    """Whether ``v``, an input of a row-wise node, has one row that is used for every one."""
    return v.type.shape[0] == 1


def row_of(node: Apply, row: Callable[[Variable], Any]) -> Any:
    """The output of ``node`` at one row, given ``row``, which gives that of an input."""
    op: Any = node.op
    rows = [row(v) for v in node.inputs]
    if isinstance(op, Elemwise):
        return op(*rows)
    (x,) = rows
    if isinstance(op, DimShuffle):
        return x.dimshuffle([k if k == "x" else k - 1 for k in op.new_order[1:]])
    new = op.clone(axis=tuple(k - 1 for k in op.axis))
    return new(x)
