"""The allocation of a buffer by `pytensor.scan`: its initial rows, and its number of rows."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import DimExpr, Dims, access_of, head, slice_of


def initial_rows(buffer: TensorVariable, size: int, dims: Dims) -> Any:
    """The first ``size`` rows of a buffer, from the variable that initialised it if that is visible."""
    expanded = _expanded(buffer, dims)
    # `scan` writes ``rows`` whole, ``empty[: rows.shape[0]]``; a rewrite folds that to `size`.
    if expanded is not None and expanded[1].constant in (None, size):
        return expanded[0]
    if buffer.owner is not None and isinstance(buffer.owner.op, Alloc):
        value, _, *trailing = buffer.owner.inputs
        if value.type.ndim < buffer.type.ndim or value.type.broadcastable[0]:
            return pt.alloc(value, size, *trailing)
    return buffer[:size]


def has_room_for_all(buffer: Variable, n_steps: Variable, size: int, dims: Dims) -> bool:
    """Whether ``buffer`` provably has ``size`` more rows than steps, as `scan` allocates it."""
    expanded = _expanded(buffer, dims)
    if expanded is None:
        return False
    _, stop, total = expanded
    # There are ``size`` initial rows, though the graph may only say that they are all rows of an array.
    steps = dims.value(n_steps)
    return total in (steps + size, steps + stop)


def _expanded(buffer: Variable, dims: Dims) -> tuple[Any, DimExpr, DimExpr] | None:
    """The parts ``(rows, stop, total)`` of ``set_subtensor(empty(total, ...)[:stop], rows)``."""
    node = buffer.owner
    if node is None or not isinstance(node.op, IncSubtensor) or not node.op.set_instead_of_inc:
        return None
    write = access_of(node)
    filled = write.array.owner
    if filled is None or not isinstance(filled.op, AllocEmpty) or write.is_row or write.trailing:
        return None
    total = dims.length(write.array)
    written = slice_of(dims, write.rows, total)
    if written is None or written != head(written.stop, total):
        return None
    return node.inputs[1], written.stop, total
