"""The rows of what an op makes, of the rows that it is given: one rule for each op.

A rule answers with the rows and the number of nodes that make them of their sources, or with None
where it cannot tell. `Pieces` asks, and answers for the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Alloc, Join, MakeVector, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type_other import NoneConst

from loopax.ir.compat import joined_rows
from loopax.ir.sizes import DimExpr
from loopax.lowering.access.row_pieces import (
    NONE,
    ONE,
    Fill,
    Rows,
    backwards,
    joined,
    repeated,
    sliced,
    taken,
)
from loopax.lowering.access.row_questions import RowQuestions

CAP = 10**6  # nodes are counted up to here


def _of_subtensor(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    rows = leading_index(node)
    if not isinstance(rows, slice) or any(map(pieces.is_guarded, node.inputs[1:])):
        return None
    source = node.inputs[0]
    window = pieces.dims.window(source, rows)
    if window is None:
        return None
    found = sliced(pieces.dims, pieces.of(source), *window)
    if found is not None:
        return found, 1 + pieces.nodes(source)
    found = sliced(pieces.dims, pieces.itself(source), *window)
    return None if found is None else (found, 1)


def _of_write(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    base = node.inputs[0]
    write = written_rows(pieces, node)
    if write is None:
        return None
    start, count, value, nodes = write
    n, rows = pieces.dims.length(base), pieces.of(base)
    before = taken(pieces.dims, rows, NONE, start)
    after = taken(pieces.dims, rows, start + count, n - start - count)
    if before is None or after is None:
        return None
    if not node.op.set_instead_of_inc:
        below = taken(pieces.dims, rows, start, count)
        both = None
        if below is not None and base.type.dtype != "bool":
            both = pieces.added([below, value], x)
        if both is None:
            return None
        value = both[0]
    return joined([*before, *value, *after]), min(CAP, 1 + nodes + pieces.nodes(base))


def written_rows(pieces: RowQuestions, node: Any) -> tuple[DimExpr, DimExpr, Rows, int] | None:
    """Where ``node`` writes how many rows, the rows, and the nodes that make them."""
    base, y = node.inputs[:2]
    index = leading_index(node)
    if index is None or y.type.dtype != base.type.dtype:
        return None
    if any(map(pieces.is_guarded, node.inputs[2:])):
        return None
    if isinstance(index, slice):
        window = pieces.dims.window(base, index)
        if window is None:
            return None
        start, count, step = window
    else:
        at = pieces.position(base, index)
        if at is None:
            return None
        start, count, step = at, ONE, 1
    written = _written(pieces, base, y, count, isinstance(index, slice))
    if written is None:
        return None
    rows, nodes = written
    if step == 1:
        return start, count, rows, nodes
    return start - count + 1, count, backwards(rows), nodes


def _written(
    pieces: RowQuestions, base: Any, y: Any, count: DimExpr, many: bool
) -> tuple[Rows, int] | None:
    """The rows that a write of ``y`` to ``count`` rows of ``base`` leaves there."""
    if all(n == 1 for n in y.type.shape):
        if y.type.ndim == base.type.ndim - 1 and pieces.agree(base, y, 1):
            piece, nodes = pieces.row_in(y)
            return joined([repeated(y, piece, count)]), nodes
        if y.type.ndim == base.type.ndim == 1 and many and count == ONE:
            return pieces.asked(y)
        if y.type.ndim <= base.type.ndim - (not many):
            return joined([Fill(pieces.scalar(y), count)]), 0
        return None
    if y.type.ndim == base.type.ndim - 1 and pieces.agree(base, y, 1):
        piece, nodes = pieces.row_in(y)
        return joined([repeated(y, piece, count)]), nodes
    if many and y.type.ndim == base.type.ndim and pieces.agree(base, y, 0):
        if pieces.dims.length(y) == count:
            return pieces.asked(y)
    return None


def _of_join(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    parts = joined_rows(node)
    if not parts or any(p.type.dtype != x.type.dtype for p in parts):
        return None
    if any(p.type.ndim != x.type.ndim or not pieces.agree(parts[0], p, 0) for p in parts):
        return None
    asked = [pieces.asked(p) for p in parts]
    found = joined([piece for rows, _ in asked for piece in rows])
    return found, min(CAP, 1 + sum(n for _, n in asked))


def _of_split(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    op, source = node.op, node.inputs[0]
    axis = getattr(op, "axis", None)
    if axis is None and isinstance(node.inputs[1], Constant):
        axis = int(node.inputs[1].data)
    lengths = [pieces.dims.length(out) for out in node.outputs]
    total = sum(lengths, NONE)
    if axis != 0 or total != pieces.dims.length(source) or pieces.is_guarded(node.inputs[-1]):
        return None
    if not all(_is_known(pieces, out, n) for out, n in zip(node.outputs, lengths, strict=True)):
        return None
    k = node.outputs.index(x)
    found = taken(pieces.dims, pieces.of(source), sum(lengths[:k], NONE), lengths[k])
    return None if found is None else (found, min(CAP, 1 + pieces.nodes(source)))


def _is_known(pieces: RowQuestions, out: Any, n: DimExpr) -> bool:
    """Whether the length that a Split was asked for cannot be negative."""
    return pieces.dims.at_least(n) and all(
        getattr(atom, "of", None) is not out for atom, _ in n.terms
    )


def _of_alloc(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    value, *dims = node.inputs
    if any(pieces.is_guarded(n) for n in dims):
        return None
    lengths = [pieces.dims.value(n) for n in dims]
    if value.type.ndim == x.type.ndim and value.type.shape[0] != 1:
        same = [pieces.dims.length(value, k) == n for k, n in enumerate(lengths)]
        if not all(same):
            return None
        rows, nodes = pieces.asked(value)
        return rows, min(CAP, 1 + nodes)
    if not all(pieces.dims.at_least(n) for n in lengths):
        return None
    row = _filled(pieces, value, x.type.ndim, lengths)
    return None if row is None else (joined([Fill(row, lengths[0])]), 1)


def _filled(pieces: RowQuestions, value: Any, ndim: int, lengths: list[DimExpr]) -> Any:
    """The row of a fill with ``value``, which has length 1 along the leading axis or lacks it."""
    if all(n == 1 for n in value.type.shape):
        return pieces.scalar(value)
    own = [pieces.length(value, k) for k in range(value.type.ndim)]
    if value.type.ndim == ndim - 1 and own == lengths[1:]:
        return value
    if value.type.ndim == ndim and own[1:] == lengths[1:]:
        return pieces.kept(value, lambda: value.dimshuffle(*range(1, ndim)))
    return None


def _of_dim_shuffle(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    inner = node.inputs[0]
    if tuple(node.op.new_order) != ("x", *range(inner.type.ndim)):
        return None
    piece, nodes = pieces.row_in(inner)
    return joined([piece]), min(CAP, 1 + nodes)


def _of_vector(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    if any(v.type.dtype != x.type.dtype for v in node.inputs):
        return None
    asked = [pieces.row_in(v) for v in node.inputs]
    return joined([piece for piece, _ in asked]), min(CAP, 1 + sum(n for _, n in asked))


def _of_specify_shape(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    source, *dims = node.inputs
    for k, n in enumerate(dims):
        if n.type != NoneConst.type and pieces.dims.value(n) != pieces.dims.length(source, k):
            return None
    rows, nodes = pieces.asked(source)
    return rows, min(CAP, 1 + nodes)


def _of_elemwise(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    if isinstance(node.op.scalar_op, ps.Second):
        return _of_second(pieces, x, *node.inputs)
    if isinstance(node.op.scalar_op, ps.Mul):
        return _of_product(pieces, x, node)
    if not isinstance(node.op.scalar_op, ps.Add) or x.type.dtype == "bool":
        return None
    if not pieces.adds_up(x, node):
        return None
    asked = [pieces.asked(v) for v in node.inputs]
    found = pieces.added([rows for rows, _ in asked], x)
    if found is None:
        return None
    return found[0], min(CAP, 1 + sum(n for _, n in asked))


def _of_product(pieces: RowQuestions, x: Any, node: Any) -> tuple[Rows, int] | None:
    """A product of fills and single numbers, all constants: one fill."""
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


def _of_second(pieces: RowQuestions, x: Any, like: Any, value: Any) -> tuple[Rows, int] | None:
    if value.type.dtype != x.type.dtype:
        return None
    lengths = [pieces.length(like, k) for k in range(x.type.ndim)]
    if value.type.shape[0] != 1:
        own = [pieces.length(value, k) for k in range(x.type.ndim)]
        at = zip(like.type.shape, lengths, own, strict=True)
        if not all(static == 1 or m == n for static, m, n in at):
            return None
        rows, nodes = pieces.asked(value)
        return rows, min(CAP, 1 + nodes)
    row = _filled(pieces, value, x.type.ndim, lengths)
    # It costs more than the Alloc: it reads a tensor for its shape alone.
    return None if row is None else (joined([Fill(row, lengths[0])]), 2)


RULES: tuple[tuple[Any, Callable[..., tuple[Rows, int] | None]], ...] = (
    (Subtensor, _of_subtensor),
    (IncSubtensor, _of_write),
    (Join, _of_join),
    (Split, _of_split),
    (Alloc, _of_alloc),
    (DimShuffle, _of_dim_shuffle),
    (MakeVector, _of_vector),
    (SpecifyShape, _of_specify_shape),
    (Elemwise, _of_elemwise),
)


def leading_index(node: Any) -> Any:
    """The index of a node that reads or writes along the leading axis alone, None for any other."""
    indices = node.inputs[2 if isinstance(node.op, IncSubtensor) else 1 :]
    first, *others = tuple(indices_from_subtensor(indices, node.op.idx_list)) or (None,)
    return first if all(i == slice(None) for i in others) else None
