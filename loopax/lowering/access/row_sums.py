"""The rows of a tensor as a sum of rows, including rows added to only a part of it.

inc_subtensor(x[1:], t) + y  ->  x + [a row of zeros, t] + y
"""

from __future__ import annotations

from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Variable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.variable import TensorVariable

from loopax.facts.elementwise import is_elementwise
from loopax.ir.sizes import Window
from loopax.lowering.access.piece_rules import written_rows
from loopax.lowering.access.pieces import MOST, Pieces
from loopax.lowering.access.row_pieces import NONE, Rows, backwards, is_zero, joined


def terms(pieces: Pieces, rows: Rows, like: Variable) -> list[Rows]:
    """Split ``rows``, of the dtype and trailing shape of ``like``, into terms of a sum, without zeros."""
    rows = joined(rows)
    if len(rows) == 1 and isinstance(rows[0], Window):
        window = rows[0]
        n = pieces.dims.length(window.source)
        if window.count == n and window.source.type.dtype == like.type.dtype:
            if window.start in (NONE, n - 1) and pieces.agree(window.source, like, 0):
                row_lists = _terms(pieces, window.source)
                return row_lists if window.step == 1 else [backwards(t) for t in row_lists]
    return [rows]


def _terms(pieces: Pieces, x: TensorVariable) -> list[Rows]:
    row_lists: list[Rows] = []
    stack = [x]
    while stack and len(row_lists) + len(stack) <= MOST:
        x = stack.pop()
        parts = _addends(pieces, x)
        if parts is None:
            row_lists.append(pieces.rows(x))
        else:
            stack += parts[0]
            row_lists += parts[1]
    row_lists += [pieces.rows(x) for x in stack]
    return [rows for rows in row_lists if not all(map(is_zero, rows))]


def _addends(pieces: Pieces, x: TensorVariable) -> tuple[list[Any], list[Rows]] | None:
    """The tensors and the rows whose sum is ``x``."""
    node = x.owner
    if node is None or x.type.dtype == "bool" or node.op.destroy_map:
        return None
    if isinstance(node.op, SpecifyShape) and pieces.rows(x) == pieces.rows(node.inputs[0]):
        return [node.inputs[0]], []
    if isinstance(node.op, IncSubtensor) and not node.op.set_instead_of_inc:
        write = written_rows(pieces, node)
        if write is None:
            return None
        window, rows, _ = write
        left = pieces.dims.length(x) - window.stop
        if not pieces.dims.at_least(window.start) or not pieces.dims.at_least(left):
            return None
        dtype = x.type.dtype
        padded = [pieces.zeros(dtype, window.start), *rows, pieces.zeros(dtype, left)]
        return [node.inputs[0]], [joined(padded)]
    if is_elementwise(node, ps.Add):
        return ([*node.inputs], []) if pieces.adds_up(x, node) else None
    return None
