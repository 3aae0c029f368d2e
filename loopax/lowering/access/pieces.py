"""Tensors described by their rows along the leading axis: windows of other tensors, single rows, fills.

    set_subtensor(zeros(n + 1)[1:], t)[::-1]  ->  t's n rows backwards, one row of zeros

`Pieces.rows` follows a tensor through slices, writes, joins, splits, fills and sums with zeros, as far as
`Dims` proves where each row lies; what cannot be followed is a window of the tensor itself. `build`
makes the shortest expression for such rows, and `cost` says how many nodes that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import DimExpr, Dims, Window, position, read_of
from loopax.lowering.access.piece_expressions import Expressions
from loopax.lowering.access.row_pieces import (
    NONE,
    ONE,
    Fill,
    Piece,
    Row,
    Rows,
    aligned,
    in_window,
    is_zero,
    joined,
)

CAP = 10**6  # node counts saturate here
MOST = 16  # most pieces of one tensor; a tensor with more stays as it is
_DEPTH = 100  # queries in topological order rarely recurse this far


@singledispatch
def rows_rule(op: Op, pieces: Pieces, x: Variable, node: Apply) -> tuple[Rows, int] | None:
    """The rows of ``x``, the output of ``node``, and the number of nodes that make them from their sources.

    None where the rows are not known. The rules of the ops are in `loopax.lowering.access.piece_rules`.
    """
    return None


class Pieces(Expressions):
    """The rows of the tensors of one graph. Ask in topological order; answers are kept.

    The parameters are as in `Expressions`.
    """

    def __init__(self, dims: Dims, guarded: Callable[[DimExpr, Any], Any] | None = None) -> None:
        super().__init__(dims, guarded)
        self._rows: dict[Any, tuple[Rows, int]] = {}
        self._guarded: dict[Any, bool] = {}
        self._depth = 0

    def rows(self, x: Variable) -> Rows:
        """The rows of ``x``, a tensor with a leading axis."""
        return self.rows_and_nodes(x)[0]

    def nodes(self, x: Variable) -> int:
        """The number of nodes that make ``x`` from the sources of its rows; 0 if it is its own source."""
        return self.rows_and_nodes(x)[1]

    def rows_and_nodes(self, x: Variable) -> tuple[Rows, int]:
        """Return `rows` and `nodes` at once."""
        kept = self._rows.get(x)
        if kept is not None:
            return kept
        itself = (Window(x, NONE, self.dims.length(x)),), 0
        if self._depth >= _DEPTH:  # not cached
            return itself
        self._depth += 1
        try:
            answer = self._by_rule(x)
        finally:
            self._depth -= 1
        if answer is None or len(answer[0]) > MOST:
            answer = itself
        self._rows[x] = answer
        return answer

    def _by_rule(self, x: Variable) -> tuple[Rows, int] | None:
        if not isinstance(x.type, DenseTensorType) or not x.type.ndim:
            return None
        if isinstance(x, Constant):
            value = self.one_value(x)
            return None if value is None else (joined([Fill(value, self.dims.length(x))]), 0)
        if x.owner is None or x.owner.op.destroy_map:
            return None
        return rows_rule(x.owner.op, self, x, x.owner)

    def itself(self, x: Variable) -> Rows:
        """View ``x`` as one window of the first tensor with its rows, for a cut of unknown pieces."""
        return (Window(self.first(self.rows(x), x), NONE, self.dims.length(x)),)

    def uniform(self, v: Variable) -> Any:
        """The common value of all elements of ``v``; None if it is not known."""
        if all(n == 1 for n in v.type.shape):
            return self.scalar(v)
        rows = self.rows(v)
        if len(rows) != 1 or not isinstance(rows[0], Fill) or rows[0].value.type.ndim:
            return None
        return rows[0].value

    # -- one row ---------------------------------------------------------------------------------

    def row_at(self, x: Variable, index: Variable) -> Piece | None:
        """The one row that ``x[index]`` reads, None where the index may be out of range."""
        window = self.row_window(x, index)
        if window is None:
            return None
        rows = in_window(self.dims, self.rows(x), window)
        rows = rows or in_window(self.dims, self.itself(x), window)
        return rows[0] if rows is not None and len(rows) == 1 else None

    def only_row(self, x: Variable) -> Piece | None:
        rows = self.rows(x)
        return rows[0] if len(rows) == 1 and rows[0].count == ONE else None

    def as_row(self, v: TensorVariable) -> Piece:
        """``v`` as one row of a tensor."""
        return self.row_in(v)[0]

    def row_in(self, v: Variable) -> tuple[Piece, int]:
        """View ``v`` as one row, traced to the tensor it was read from; and the nodes that read it."""
        if isinstance(v, Constant):
            value = self.one_value(v)
            return (Row(v) if value is None else Fill(value, ONE)), 0
        node = v.owner
        source: Any = node.inputs[0] if node is not None and node.inputs else None
        read = read_of(node)
        if read is not None and read.is_row and read.is_whole:
            piece = self.row_at(source, read.rows)
            if piece is not None:
                return piece, min(CAP, 1 + self.nodes(source))
        if drops_leading_axis(node):
            piece = self.only_row(source)
            if piece is not None:
                return piece, min(CAP, 1 + self.nodes(source))
        if v.type.ndim:
            rows, nodes = self.rows_and_nodes(v)
            if len(rows) == 1 and isinstance(rows[0], Fill) and not rows[0].value.type.ndim:
                return Fill(rows[0].value, ONE), nodes
        return Row(v), 0

    def row_window(self, x: Variable, index: Variable) -> Window | None:
        """The row ``x[index]`` as a window of ``x``, None where the index may be out of range."""
        if self.is_guarded(index):
            return None
        n = self.dims.length(x)
        at = position(self.dims, index, n)
        inside = self.dims.at_least(at) and self.dims.at_least(n - at, 1)
        return Window(x, at, ONE) if inside else None

    def is_guarded(self, v: Variable) -> bool:
        """Whether the arithmetic of the integer ``v`` contains a check, which `Dims` would look through."""
        known = self._guarded.get(v)
        if known is None:
            node = v.owner
            known = node is not None and (
                isinstance(node.op, CheckAndRaise)
                or any(self.is_guarded(u) for u in node.inputs if _is_number(u))
            )
            self._guarded[v] = known
        return known

    # -- sums ------------------------------------------------------------------------------------

    def added(self, terms: Sequence[Rows], like: Variable) -> tuple[Rows, int] | None:
        """The sum of rows, simplified where some of them are zero, and the number of nodes it takes."""
        parts: list[tuple[DimExpr, list[Piece]]] = [(p.count, [p]) for p in terms[0]]
        for rows in terms[1:]:
            refined = aligned(self.dims, parts, rows)
            if refined is None or len(refined) > MOST:
                return None
            parts = refined
        summed: list[Piece] = []
        sums, zeros = [], False
        for _, together in parts:
            left = [p for p in together if not is_zero(p)]
            zeros = zeros or len(left) < len(together)
            if len(left) > 1:
                sums.append((len(summed), left))
            summed.append((left or together)[0])
        if not zeros or len(sums) > 1:
            return None
        if sums and not all(is_zero(p) for k, p in enumerate(summed) if k != sums[0][0]):
            return None  # the windows overlap: adding them would cut them into more pieces
        for k, left in sums:
            summed[k] = self._sum(left, like)
        return joined(summed), len(sums)

    def _sum(self, terms: list[Piece], like: Variable) -> Piece:
        if all(p.count == ONE for p in terms):
            total = pt.add(*[self.row(p, like) for p in terms])
            self.sum_costs[total] = 1
            return Row(total)
        total = pt.add(*[self.build((p,), like) for p in terms])
        self.sum_costs[total] = 1 + sum(self.cost((p,)) for p in terms)
        return Window(total, NONE, terms[0].count)

    def adds_up(self, x: Variable, node: Apply) -> bool:
        """Whether all inputs of the sum ``x`` have its dtype and its shape."""
        operands = node.inputs
        return all(
            v.type.dtype == x.type.dtype
            and self.agree(operands[0], v, 0)
            and self.dims.length(v) == self.dims.length(operands[0])
            for v in operands
        )


def drops_leading_axis(node: Apply | None) -> bool:
    """Whether ``node`` only drops the leading axis of a tensor that has exactly one row."""
    if node is None or not isinstance(node.op, DimShuffle):
        return False
    return tuple(node.op.new_order) == tuple(range(1, node.inputs[0].type.ndim))


def _is_number(v: Variable) -> bool:
    dtype = str(getattr(v.type, "dtype", ""))
    return dtype.startswith(("int", "uint", "bool")) and not getattr(v.type, "ndim", 0)
