"""Tensors built from rows known as pieces, in the fewest nodes.

    rows 0 to n - 2 of t, one row of zeros  ->  join(0, t[:-1], alloc(0.0, 1))

Equal rows share one expression: the first that was built or requested.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle

from loopax.base.upstream.pytensor import joined_rows
from loopax.ir.shapes import filled
from loopax.ir.sizes import DimExpr, Dims, Length, Slice, Window
from loopax.lowering.access.row_pieces import ONE, Fill, Piece, Row, Rows

_LARGE = 2**16  # elements of a constant that are compared


class Expressions:
    """The tensors of one graph, by their rows.

    Parameters
    ----------
    dims
        The analysis of their lengths.
    guarded
        Adds a check to the variable for an expression, where ``dims`` takes something for granted.
    """

    def __init__(self, dims: Dims, guarded: Callable[[DimExpr, Any], Any] | None = None) -> None:
        self.dims = dims
        self._guard = guarded
        self._scalars: dict[Any, Any] = {}
        self._built: dict[Any, Any] = {}
        self.sum_costs: dict[Any, int] = {}  # sums that are not in the graph: what they cost

    # -- lengths ---------------------------------------------------------------------------------

    def length(self, x: Variable, axis: int) -> DimExpr:
        """The length of ``x`` along an axis, expressed by something other than ``x`` where possible."""
        first: DimExpr | None = None
        stack, seen = [(x, axis)], {(x, axis)}  # parts may be joined of the same parts again
        while stack:
            expr = self.dims.length(*stack.pop())
            variable: Any = expr.only_variable if axis else None
            is_length = isinstance(variable, Length) and variable.axis
            parts = joined_rows(variable.of.owner) if is_length else None
            if not parts:
                if expr.constant is not None:
                    return expr
                first = first or expr
                continue
            new = [(part, variable.axis) for part in parts if (part, variable.axis) not in seen]
            seen.update(new)
            stack += reversed(new)
        assert first is not None
        return first

    def hangs_on(self, expr: DimExpr, x: Variable) -> bool:
        """Whether the variable for ``expr`` would be read from the shape of ``x``."""
        return any(isinstance(variable, Length) and variable.of is x for variable, _ in expr.terms)

    def agree(self, x: Variable, y: Variable, off: int) -> bool:
        """Whether rows of ``x`` have the shape of rows of ``y``, or of ``y`` itself if ``off`` is 1."""
        if y.type.ndim != x.type.ndim - off:
            return False
        axes = range(1, x.type.ndim)
        return all(self.length(x, k) == self.length(y, k - off) for k in axes)

    def number(self, expr: DimExpr) -> Any:
        """The variable for ``expr``, the same one at each call."""
        return self.made_once(expr, lambda: self._number(expr))

    def _number(self, expr: DimExpr) -> Any:
        v = self.dims.variable(expr)
        return v if self._guard is None else self._guard(expr, v)

    # -- numbers ---------------------------------------------------------------------------------

    def zeros(self, dtype: str, count: DimExpr = ONE) -> Fill:
        return Fill(self.constant(np.zeros((), dtype)[()]), count)

    def scalar(self, value: Any) -> Any:
        """The one element of ``value``, as a variable without dimensions."""
        while value.owner is not None and isinstance(value.owner.op, DimShuffle | Alloc):
            inner = value.owner.inputs[0]
            if any(n != 1 for n in inner.type.shape):
                break
            value = inner
        if isinstance(value, Constant):
            return self.constant(value.data.reshape(()))
        if not value.type.ndim:
            return value
        return self.made_once(value, lambda: value.dimshuffle())

    def one_value(self, x: Constant) -> Any:
        """The common value of all elements of the constant ``x``; None if they differ."""
        data = x.data
        if not data.size or data.size > _LARGE or data.dtype.kind not in "biuf":
            return None
        first = data.reshape(-1)[0]
        signs = np.signbit(data) if data.dtype.kind == "f" else data < 0
        return self.constant(first) if np.all(data == first) and np.ptp(signs * 1) == 0 else None

    def constant(self, number: np.ndarray | np.generic) -> Any:
        """A scalar constant, cached by its number."""
        key = number.dtype.name, number.tobytes()
        return self.made_once(key, lambda: pt.constant(number, dtype=number.dtype.name))

    def made_once(self, value: Hashable, make: Callable[[], Any]) -> Any:
        if value not in self._scalars:
            self._scalars[value] = make()
        return self._scalars[value]

    # -- tensors ---------------------------------------------------------------------------------

    def cost(self, rows: Rows) -> int:
        """The number of nodes that `build` takes."""
        return sum(map(self._cost, rows)) + (len(rows) != 1)

    def _cost(self, piece: Piece) -> int:
        if not isinstance(piece, Window):
            return 1 + (self.sum_costs.get(piece.row, 0) if isinstance(piece, Row) else 0)
        source_cost = self.sum_costs.get(piece.source, 0)
        entry = self._entry(piece)
        if entry is None or (piece.count == ONE and entry != slice(None)):
            return source_cost + 2
        return source_cost + (entry != slice(None))

    def build(self, rows: Rows, like: Variable) -> Any:
        """Build a tensor of these rows, with the dtype and the trailing shape of ``like``."""
        return self._kept_expression(self._key(rows, like))

    def _kept_expression(self, key: tuple[Any, ...]) -> Any:
        if key not in self._built:
            self._built[key] = self._expression(*key)
        return self._built[key]

    def spelled(self, rows: Rows, like: Variable, accept: Callable[[Any], bool]) -> Any:
        """Build a new expression for ``rows``; if ``accept`` approves, `build` returns it from then on."""
        key = self._key(rows, like)
        new = self._expression(*key)
        if not accept(new):
            return None
        self._built[key] = new
        return new

    def _expression(self, rows: Rows, trailing: tuple[DimExpr, ...], dtype: str) -> Any:
        if len(rows) == 1:
            return self._one(rows[0], trailing, dtype)
        if rows:
            parts = [self._kept_expression(((piece,), trailing, dtype)) for piece in rows]
            return pt.join(0, *parts)
        return filled(np.zeros((), dtype=dtype), [0, *map(self.number, trailing)])

    def _key(self, rows: Rows, like: Variable) -> Any:
        trailing = tuple(self.length(like, k) for k in range(1, like.type.ndim))
        return rows, trailing, like.type.dtype

    def keep(self, rows: Rows, x: Variable) -> None:
        """Make ``x`` the expression for its rows."""
        self._built[self._key(rows, x)] = x

    def first(self, rows: Rows, x: Variable) -> Any:
        """The first tensor with the rows of ``x`` that was built or asked for; it may be ``x``."""
        return self._built.setdefault(self._key(rows, x), x)

    def _one(self, piece: Piece, trailing: tuple[DimExpr, ...], dtype: str) -> Any:
        if isinstance(piece, Row):
            return pt.shape_padleft(piece.row)
        if isinstance(piece, Fill):
            return filled(piece.value, [*map(self.number, (piece.count, *trailing))])
        entry = self._entry(piece)
        if entry is None:
            return self._kept_expression(((piece.backwards(),), trailing, dtype))[::-1]
        if entry == slice(None):
            return piece.source
        if piece.count == ONE:
            return pt.shape_padleft(piece.source[self._index(piece)])  # its type says: one row
        return piece.source[entry]

    def row(self, piece: Piece, like: Variable) -> Any:
        """One row of the piece, with the shape of a row of ``like``."""
        if isinstance(piece, Row):
            return piece.row
        if isinstance(piece, Window):
            return piece.source[self._index(piece)]
        if piece.value.type.ndim == like.type.ndim - 1:
            return piece.value
        first, *trailing = [self.length(like, k) for k in range(1, like.type.ndim)]
        fill = Fill(piece.value, first)
        return self._kept_expression(((fill,), tuple(trailing), like.type.dtype))

    def _index(self, piece: Window) -> Any:
        bound = self._slice(piece).bound(self.dims, piece.start)
        bound = piece.start if bound is None else bound
        return self.number(bound) if bound.constant is None else bound.constant

    def _slice(self, piece: Window) -> Slice:
        return piece.slice(self.dims.length(piece.source))

    def _entry(self, piece: Window) -> slice | None:
        return self._slice(piece).entry(self.dims, self.number)
