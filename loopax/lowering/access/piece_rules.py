"""Rules, one for each op, that express the rows of its output by rows of its inputs.

A rule (`rows_rule`) asks `Pieces` for the rows of the inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, Join, MakeVector, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type_other import NoneConst

from loopax.base.upstream.pytensor import axis_of, joined_rows
from loopax.ir.sizes import DimExpr, Window, access_of, window_of
from loopax.lowering.access.pieces import CAP, Pieces, rows_rule
from loopax.lowering.access.row_pieces import (
    NONE,
    ONE,
    Fill,
    Rows,
    backwards,
    in_window,
    joined,
    part,
    repeated,
)


@rows_rule.register(Subtensor)
def _slice(op: Subtensor, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    source, rows, _ = read = access_of(node)
    if read.is_row or not read.is_whole or any(map(pieces.is_guarded, node.inputs[1:])):
        return None
    window = window_of(pieces.dims, source, rows)
    if window is None:
        return None
    rows_read = in_window(pieces.dims, pieces.rows(source), window)
    if rows_read is not None:
        return rows_read, 1 + pieces.nodes(source)
    rows_read = in_window(pieces.dims, pieces.itself(source), window)
    return None if rows_read is None else (rows_read, 1)


@rows_rule.register(IncSubtensor)
def _write(op: IncSubtensor, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    write = written_rows(pieces, node)
    if write is None:
        return None
    window, value, nodes = write
    base = window.source
    n, rows = pieces.dims.length(base), pieces.rows(base)
    before = part(pieces.dims, rows, NONE, window.start)
    after = part(pieces.dims, rows, window.stop, n - window.stop)
    if before is None or after is None:
        return None
    if not op.set_instead_of_inc:
        below = in_window(pieces.dims, rows, window)
        both = None
        if below is not None and base.type.dtype != "bool":
            both = pieces.added([below, value], x)
        if both is None:
            return None
        value = both[0]
    return joined([*before, *value, *after]), min(CAP, 1 + nodes + pieces.nodes(base))


def written_rows(pieces: Pieces, node: Apply) -> tuple[Window, Rows, int] | None:
    """The window that ``node`` writes to, the rows written there, and the nodes that make them."""
    write, y = access_of(node), node.inputs[1]
    base = write.array
    if not write.is_whole or y.type.dtype != base.type.dtype:
        return None
    if any(map(pieces.is_guarded, node.inputs[2:])):
        return None
    if write.is_row:
        window = pieces.row_window(base, write.rows)
    else:
        window = window_of(pieces.dims, base, write.rows)
    if window is None:
        return None
    written = _written(pieces, base, y, window.count, not write.is_row)
    if written is None or window.step == 1:
        return written and (window, *written)
    rows, nodes = written
    return window.backwards(), backwards(rows), nodes


def _written(
    pieces: Pieces, base: Variable, y: Variable, count: DimExpr, many: bool
) -> tuple[Rows, int] | None:
    """The rows that ``count`` rows of ``base`` hold after ``y`` has been written to them."""
    if pieces.agree(base, y, 1):
        piece, nodes = pieces.row_in(y)
        return joined([repeated(y, piece, count)]), nodes
    if all(n == 1 for n in y.type.shape):
        if y.type.ndim == base.type.ndim == 1 and many and count == ONE:
            return pieces.rows_and_nodes(y)
        if y.type.ndim <= base.type.ndim - (not many):
            return joined([Fill(pieces.scalar(y), count)]), 0
        return None
    if many and pieces.agree(base, y, 0) and pieces.dims.length(y) == count:
        return pieces.rows_and_nodes(y)
    return None


@rows_rule.register(Join)
def _join(op: Join, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    parts = joined_rows(node)
    if not parts or any(p.type.dtype != x.type.dtype for p in parts):
        return None
    if any(not pieces.agree(parts[0], p, 0) for p in parts):
        return None
    asked = [pieces.rows_and_nodes(p) for p in parts]
    pieces_joined = joined([piece for rows, _ in asked for piece in rows])
    return pieces_joined, min(CAP, 1 + sum(n for _, n in asked))


@rows_rule.register(Split)
def _split(op: Split, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    source = node.inputs[0]
    axis = axis_of(node)
    lengths = [pieces.dims.length(out) for out in node.outputs]
    total = sum(lengths, NONE)
    if axis != 0 or total != pieces.dims.length(source) or pieces.is_guarded(node.inputs[-1]):
        return None
    if not all(_is_known(pieces, out, n) for out, n in zip(node.outputs, lengths, strict=True)):
        return None
    k = node.outputs.index(x)
    rows_of_part = part(pieces.dims, pieces.rows(source), sum(lengths[:k], NONE), lengths[k])
    return None if rows_of_part is None else (rows_of_part, min(CAP, 1 + pieces.nodes(source)))


def _is_known(pieces: Pieces, out: Variable, n: DimExpr) -> bool:
    """Whether the length of a part of a Split is known not to be negative, without relying on that part."""
    return pieces.dims.at_least(n) and all(
        getattr(atom, "of", None) is not out for atom, _ in n.terms
    )


@rows_rule.register(Alloc)
def _alloc(op: Alloc, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    value, *dims = node.inputs
    if any(pieces.is_guarded(n) for n in dims):
        return None
    lengths = [pieces.dims.value(n) for n in dims]
    if value.type.ndim == x.type.ndim and value.type.shape[0] != 1:
        same = [pieces.dims.length(value, k) == n for k, n in enumerate(lengths)]
        if not all(same):
            return None
        rows, nodes = pieces.rows_and_nodes(value)
        return rows, min(CAP, 1 + nodes)
    if not all(pieces.dims.at_least(n) for n in lengths):
        return None
    row = _filled(pieces, value, x.type.ndim, lengths)
    return None if row is None else (joined([Fill(row, lengths[0])]), 1)


def _filled(pieces: Pieces, value: Any, ndim: int, lengths: list[DimExpr]) -> Any:
    """The row of a fill with ``value``, which has length 1 along the leading axis or lacks that axis."""
    if all(n == 1 for n in value.type.shape):
        return pieces.scalar(value)
    own = [pieces.length(value, k) for k in range(value.type.ndim)]
    if value.type.ndim == ndim - 1 and own == lengths[1:]:
        return value
    if value.type.ndim == ndim and own[1:] == lengths[1:]:
        return pieces.made_once(value, lambda: value.dimshuffle(*range(1, ndim)))
    return None


@rows_rule.register(DimShuffle)
def _added_axis(
    op: DimShuffle, pieces: Pieces, x: Variable, node: Apply
) -> tuple[Rows, int] | None:
    inner = node.inputs[0]
    if tuple(op.new_order) != ("x", *range(inner.type.ndim)):
        return None
    piece, nodes = pieces.row_in(inner)
    return joined([piece]), min(CAP, 1 + nodes)


@rows_rule.register(MakeVector)
def _vector(op: MakeVector, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    if any(v.type.dtype != x.type.dtype for v in node.inputs):
        return None
    asked = [pieces.row_in(v) for v in node.inputs]
    return joined([piece for piece, _ in asked]), min(CAP, 1 + sum(n for _, n in asked))


@rows_rule.register(SpecifyShape)
def _specified(
    op: SpecifyShape, pieces: Pieces, x: Variable, node: Apply
) -> tuple[Rows, int] | None:
    source, *dims = node.inputs
    for k, n in enumerate(dims):
        if n.type != NoneConst.type and pieces.dims.value(n) != pieces.dims.length(source, k):
            return None
    rows, nodes = pieces.rows_and_nodes(source)
    return rows, min(CAP, 1 + nodes)


@rows_rule.register(Elemwise)
def _elementwise(op: Elemwise, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    if isinstance(op.scalar_op, ps.Second):
        return _second(pieces, x, *node.inputs)
    if isinstance(op.scalar_op, ps.Mul):
        return _product(pieces, x, node)
    if not isinstance(op.scalar_op, ps.Add) or x.type.dtype == "bool":
        return None
    if not pieces.adds_up(x, node):
        return None
    asked = [pieces.rows_and_nodes(v) for v in node.inputs]
    total = pieces.added([rows for rows, _ in asked], x)
    if total is None:
        return None
    return total[0], min(CAP, 1 + sum(n for _, n in asked))


def _product(pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    """A product of fills and scalars, all of them constant, as one fill."""
    factors, fills = [], []
    for v in node.inputs:
        value = pieces.uniform(v)
        if not isinstance(value, Constant):
            return None
        factors.append(value.data)
        if any(n != 1 for n in v.type.shape):
            fills.append(v)
    if not fills or any(not pieces.agree(fills[0], v, 0) for v in fills):
        return None
    n = pieces.dims.length(fills[0])
    if x.type.shape[0] == 1 or any(pieces.dims.length(v) != n for v in fills):
        return None
    product = np.prod(np.asarray(factors, x.type.dtype), dtype=x.type.dtype)
    nodes = min(CAP, 1 + sum(map(pieces.nodes, fills)))
    return joined([Fill(pieces.constant(product), n)]), nodes


def _second(
    pieces: Pieces, x: Variable, like: Variable, value: Variable
) -> tuple[Rows, int] | None:
    if value.type.dtype != x.type.dtype:
        return None
    lengths = [pieces.length(like, k) for k in range(x.type.ndim)]
    if value.type.shape[0] != 1:
        own = [pieces.length(value, k) for k in range(x.type.ndim)]
        at = zip(like.type.shape, lengths, own, strict=True)
        if not all(static == 1 or m == n for static, m, n in at):
            return None
        rows, nodes = pieces.rows_and_nodes(value)
        return rows, min(CAP, 1 + nodes)
    row = _filled(pieces, value, x.type.ndim, lengths)
    # It costs more than the Alloc, because it reads a tensor only for its shape.
    return None if row is None else (joined([Fill(row, lengths[0])]), 2)
