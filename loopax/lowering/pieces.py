"""A tensor as rows along its leading axis: windows of other tensors, single rows, fills.

    set_subtensor(zeros(n + 1)[1:], t)[::-1]  ->  t's n rows backwards, one row of zeros

`Pieces.of` follows a tensor through slices, writes, joins, splits, fills and sums with zeros, as far as
`Sizes` proves where each row lies; what cannot be followed is a window of the tensor itself. `build`
makes the shortest expression for such rows, and `cost` says how many nodes that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.type_other import NoneConst

from loopax.ir.compat import joined_rows
from loopax.lowering.sizes import Length, Size, Sizes

_MOST = 16  # pieces of one tensor; what has more stays as it is
_DEPTH = 100  # as in Sizes: asked in topological order, few questions go far
_LARGE = 2**16  # elements of a constant that are compared
_CAP = 10**6
_NONE, _ONE = Size(), Size(offset=1)


@dataclass(frozen=True)
class Window:
    """``count`` rows of ``source``: row ``start`` and those after it (before it, where step is -1)."""

    source: Any
    start: Size
    count: Size
    step: int


@dataclass(frozen=True)
class Row:
    """One row, a variable of one dimension less."""

    row: Any
    count: Size = _ONE


@dataclass(frozen=True)
class Fill:
    """``count`` times the same row; ``value`` is the row, or a scalar that all its elements are."""

    value: Any
    count: Size


Piece = Window | Row | Fill
Rows = tuple[Piece, ...]


class Pieces:
    """The rows of the tensors of one graph. Ask in topological order; answers are kept.

    Parameters
    ----------
    sizes
        What is known of their lengths.
    guarded
        Puts a check around the number for a size, where ``sizes`` takes something for granted.
    """

    def __init__(self, sizes: Sizes, guarded: Callable[[Size, Any], Any] | None = None) -> None:
        self.sizes = sizes
        self._guard = guarded
        self._rows: dict[Any, tuple[Rows, int]] = {}
        self._scalars: dict[Any, Any] = {}
        self._built: dict[Any, Any] = {}
        self._made: dict[Any, int] = {}  # sums that are not in the graph: what they cost
        self._guarded: dict[Any, bool] = {}
        self._depth = 0

    # -- questions -------------------------------------------------------------------------------

    def of(self, x: Any) -> Rows:
        """The rows of ``x``, a tensor with a leading axis."""
        return self._asked(x)[0]

    def nodes(self, x: Any) -> int:
        """How many nodes make ``x`` of the sources of its rows; 0 where it is its own source."""
        return self._asked(x)[1]

    def _asked(self, x: Any) -> tuple[Rows, int]:
        found = self._rows.get(x)
        if found is not None:
            return found
        itself = (Window(x, _NONE, self.sizes.length(x), 1),), 0
        if self._depth >= _DEPTH:  # not kept
            return itself
        self._depth += 1
        try:
            answer = self._found(x)
        finally:
            self._depth -= 1
        if answer is None or len(answer[0]) > _MOST:
            answer = itself
        self._rows[x] = answer
        return answer

    def row_at(self, x: Any, index: Any) -> Piece | None:
        """The one row that ``x[index]`` reads, None where the index may be out of range."""
        at = self._position(x, index)
        taken = None if at is None else self.taken(self.of(x), at, _ONE)
        return taken[0] if taken is not None and len(taken) == 1 else None

    def only_row(self, x: Any) -> Piece | None:
        """The row of a tensor that has exactly one."""
        rows = self.of(x)
        return rows[0] if len(rows) == 1 and rows[0].count == _ONE else None

    def _position(self, x: Any, index: Any) -> Size | None:
        if self.is_guarded(index):
            return None
        n, at = self.sizes.length(x), self.sizes.of(index)
        if self.sizes.at_least(-at, 1):
            at = at + n
        inside = self.sizes.at_least(at) and self.sizes.at_least(n - at, 1)
        return at if inside else None

    def is_guarded(self, v: Any) -> bool:
        """Whether a check stands in the arithmetic of the integer ``v``: `Sizes` looks through it."""
        found = self._guarded.get(v)
        if found is None:
            node = v.owner
            found = node is not None and (
                isinstance(node.op, CheckAndRaise)
                or any(self.is_guarded(u) for u in node.inputs if _is_integer(u))
            )
            self._guarded[v] = found
        return found

    def length(self, x: Any, axis: int) -> Size:
        """The length of ``x`` along an axis, of something else wherever it can be."""
        parts = joined_rows(x.owner) if axis and x.type.shape[axis] is None else None
        if not parts:
            return self.sizes.length(x, axis)
        lengths = [self.sizes.length(part, axis) for part in parts]
        return next((n for n in lengths if n.constant is not None), lengths[0])

    def hangs_on(self, size: Size, x: Any) -> bool:
        """Whether a number for ``size`` would be read from ``x``."""
        return any(isinstance(atom, Length) and atom.of is x for atom, _ in size.terms)

    # -- arithmetic of rows ----------------------------------------------------------------------

    def taken(self, rows: Rows, start: Size, count: Size) -> Rows | None:
        """``count`` rows from ``start`` on, None where the pieces they lie in are not known."""
        least, found = self.sizes.at_least, []
        for piece in rows:
            if count == _NONE:
                break
            n = piece.count
            if least(start - n):
                start = start - n
                continue
            if not least(n - start):
                return None
            left = n - start
            if least(count - left):
                part = left
            elif least(left - count):
                part = count
            else:
                return None
            cut = _cut(piece, start, part)
            if cut is None:
                return None
            found.append(cut)
            start, count = _NONE, count - part
        return _joined(found) if count == _NONE else None

    def sliced(self, rows: Rows, start: Size, count: Size, step: int) -> Rows | None:
        if step == 1:
            return self.taken(rows, start, count)
        found = self.taken(rows, start - count + 1, count)
        return None if found is None else backwards(found)

    def added(self, terms: Sequence[Rows], like: Any) -> tuple[Rows, int] | None:
        """The sum of rows, where zeros in some of them leave less to add; and the nodes it takes."""
        parts: list[tuple[Size, list[Piece]]] = [(p.count, [p]) for p in terms[0]]
        for rows in terms[1:]:
            refined = self._refined(parts, rows)
            if refined is None or len(refined) > _MOST:
                return None
            parts = refined
        found: list[Piece] = []
        sums, zeros = [], False
        for _, together in parts:
            left = [p for p in together if not is_zero(p)]
            zeros = zeros or len(left) < len(together)
            if len(left) > 1:
                sums.append((len(found), left))
            found.append((left or together)[0])
        if not zeros or len(sums) > 1:
            return None
        for k, left in sums:
            found[k] = self._sum(left, like)
        return _joined(found), len(sums)

    def _refined(self, parts: Any, rows: Rows) -> Any:
        """``parts`` with the rows beside them, cut where either has a border."""
        found: list[tuple[Size, list[Piece]]] = []
        left, right = list(parts), list(rows)
        while left and right:
            (n, together), piece = left.pop(0), right.pop(0)
            m = piece.count
            if self.sizes.at_least(m - n):
                part = n
            elif self.sizes.at_least(n - m):
                part = m
            else:
                return None
            cuts = [_cut(p, _NONE, part) for p in (*together, piece)]
            if None in cuts:
                return None
            found.append((part, cuts))  # type: ignore[arg-type]
            if part != n:
                rest = [_cut(p, part, n - part) for p in together]
                if None in rest:
                    return None
                left.insert(0, (n - part, rest))
            if part != m:
                rest_of = _cut(piece, part, m - part)
                if rest_of is None:
                    return None
                right.insert(0, rest_of)
        return None if left or right else found

    def _sum(self, terms: list[Piece], like: Any) -> Piece:
        if all(p.count == _ONE for p in terms):
            total = pt.add(*[self.row(p, like) for p in terms])
            self._made[total] = 1
            return Row(total)
        total = pt.add(*[self.build((p,), like) for p in terms])
        self._made[total] = 1 + sum(self.cost((p,)) for p in terms)
        return Window(total, _NONE, terms[0].count, 1)

    # -- the rows of each op ---------------------------------------------------------------------

    def _found(self, x: Any) -> tuple[Rows, int] | None:
        if not isinstance(x.type, DenseTensorType) or not x.type.ndim:
            return None
        if isinstance(x, Constant):
            value = self._one_value(x)
            return None if value is None else (_joined([Fill(value, self.sizes.length(x))]), 0)
        if x.owner is None or x.owner.op.destroy_map:
            return None
        for kinds, rule in _RULES:
            if isinstance(x.owner.op, kinds):
                return rule(self, x, x.owner)
        return None

    def _of_subtensor(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        rows = leading_index(node)
        if not isinstance(rows, slice) or any(map(self.is_guarded, node.inputs[1:])):
            return None
        source = node.inputs[0]
        window = self.sizes.window(source, rows)
        found = None if window is None else self.sliced(self.of(source), *window)
        return None if found is None else (found, 1 + self.nodes(source))

    def _of_write(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        base, y = node.inputs[:2]
        index = leading_index(node)
        if index is None or y.type.dtype != base.type.dtype:
            return None
        if any(map(self.is_guarded, node.inputs[2:])):
            return None
        n = self.sizes.length(base)
        if isinstance(index, slice):
            window = self.sizes.window(base, index)
            if window is None:
                return None
            start, count, step = window
            if step == -1:
                start = start - count + 1
        else:
            at = self._position(base, index)
            if at is None:
                return None
            start, count, step = at, _ONE, 1
        written = self._written(base, y, count, isinstance(index, slice))
        if written is None:
            return None
        value, nodes = written
        if step == -1:
            value = backwards(value)
        rows = self.of(base)
        before = self.taken(rows, _NONE, start)
        after = self.taken(rows, start + count, n - start - count)
        if before is None or after is None:
            return None
        if not node.op.set_instead_of_inc:
            below = self.taken(rows, start, count)
            both = None
            if below is not None and base.type.dtype != "bool":
                both = self.added([below, value], x)
            if both is None:
                return None
            value = both[0]
        return _joined([*before, *value, *after]), min(_CAP, 1 + nodes + self.nodes(base))

    def _written(self, base: Any, y: Any, count: Size, many: bool) -> tuple[Rows, int] | None:
        """The rows that a write of ``y`` to ``count`` rows of ``base`` leaves there."""
        if all(n == 1 for n in y.type.shape):
            if y.type.ndim == base.type.ndim - 1 and self._agree(base, y, 1):
                piece, nodes = self._row(y)
                return _joined([_repeated(y, piece, count)]), nodes
            if y.type.ndim == base.type.ndim == 1 and many and count == _ONE:
                return self._asked(y)
            if y.type.ndim <= base.type.ndim - (not many):
                return _joined([Fill(self._scalar(y), count)]), 0
            return None
        if y.type.ndim == base.type.ndim - 1 and self._agree(base, y, 1):
            piece, nodes = self._row(y)
            return _joined([_repeated(y, piece, count)]), nodes
        if many and y.type.ndim == base.type.ndim and self._agree(base, y, 0):
            if self.sizes.length(y) == count:
                return self._asked(y)
        return None

    def _of_join(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        parts = joined_rows(node)
        if not parts or any(p.type.dtype != x.type.dtype for p in parts):
            return None
        if any(p.type.ndim != x.type.ndim or not self._agree(parts[0], p, 0) for p in parts):
            return None
        asked = [self._asked(p) for p in parts]
        pieces = _joined([piece for rows, _ in asked for piece in rows])
        return pieces, min(_CAP, 1 + sum(n for _, n in asked))

    def _of_split(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        op, source = node.op, node.inputs[0]
        axis = getattr(op, "axis", None)
        if axis is None and isinstance(node.inputs[1], Constant):
            axis = int(node.inputs[1].data)
        lengths = [self.sizes.length(out) for out in node.outputs]
        total = sum(lengths, _NONE)
        if axis != 0 or total != self.sizes.length(source) or self.is_guarded(node.inputs[-1]):
            return None
        if not all(self._is_known(out, n) for out, n in zip(node.outputs, lengths, strict=True)):
            return None
        k = node.outputs.index(x)
        found = self.taken(self.of(source), sum(lengths[:k], _NONE), lengths[k])
        return None if found is None else (found, min(_CAP, 1 + self.nodes(source)))

    def _is_known(self, out: Any, n: Size) -> bool:
        """Whether the length that a Split was asked for cannot be negative."""
        return self.sizes.at_least(n) and all(
            getattr(atom, "of", None) is not out for atom, _ in n.terms
        )

    def _of_alloc(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        value, *dims = node.inputs
        if any(self.is_guarded(n) for n in dims):
            return None
        lengths = [self.sizes.of(n) for n in dims]
        if value.type.ndim == x.type.ndim and value.type.shape[0] != 1:
            same = [self.sizes.length(value, k) == n for k, n in enumerate(lengths)]
            if not all(same):
                return None
            rows, nodes = self._asked(value)
            return rows, min(_CAP, 1 + nodes)
        if not all(self.sizes.at_least(n) for n in lengths):
            return None
        row = self._filled(value, x.type.ndim, lengths)
        return None if row is None else (_joined([Fill(row, lengths[0])]), 1)

    def _filled(self, value: Any, ndim: int, lengths: list[Size]) -> Any:
        """The row of a fill with ``value``, which has length 1 along the leading axis or lacks it."""
        if all(n == 1 for n in value.type.shape):
            return self._scalar(value)
        own = [self.length(value, k) for k in range(value.type.ndim)]
        if value.type.ndim == ndim - 1 and own == lengths[1:]:
            return value
        if value.type.ndim == ndim and own[1:] == lengths[1:]:
            return self._kept(value, lambda: value.dimshuffle(*range(1, ndim)))
        return None

    def _of_dim_shuffle(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        inner = node.inputs[0]
        if tuple(node.op.new_order) != ("x", *range(inner.type.ndim)):
            return None
        piece, nodes = self._row(inner)
        return _joined([piece]), min(_CAP, 1 + nodes)

    def _of_vector(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        if any(v.type.dtype != x.type.dtype for v in node.inputs):
            return None
        asked = [self._row(v) for v in node.inputs]
        return _joined([piece for piece, _ in asked]), min(_CAP, 1 + sum(n for _, n in asked))

    def _of_specify_shape(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        source, *dims = node.inputs
        for k, n in enumerate(dims):
            if n.type != NoneConst.type and self.sizes.of(n) != self.sizes.length(source, k):
                return None
        rows, nodes = self._asked(source)
        return rows, min(_CAP, 1 + nodes)

    def _of_elemwise(self, x: Any, node: Any) -> tuple[Rows, int] | None:
        if isinstance(node.op.scalar_op, ps.Second):
            return self._of_second(x, *node.inputs)
        if not isinstance(node.op.scalar_op, ps.Add) or x.type.dtype == "bool":
            return None
        given = node.inputs
        if any(v.type.dtype != x.type.dtype or not self._agree(given[0], v, 0) for v in given):
            return None
        if any(self.sizes.length(v) != self.sizes.length(given[0]) for v in given):
            return None
        asked = [self._asked(v) for v in given]
        found = self.added([rows for rows, _ in asked], x)
        if found is None:
            return None
        return found[0], min(_CAP, 1 + sum(n for _, n in asked))

    def _of_second(self, x: Any, like: Any, value: Any) -> tuple[Rows, int] | None:
        if value.type.dtype != x.type.dtype:
            return None
        lengths = [self.length(like, k) for k in range(x.type.ndim)]
        if value.type.shape[0] != 1:
            own = [self.length(value, k) for k in range(x.type.ndim)]
            at = zip(like.type.shape, lengths, own, strict=True)
            if not all(static == 1 or m == n for static, m, n in at):
                return None
            rows, nodes = self._asked(value)
            return rows, min(_CAP, 1 + nodes)
        row = self._filled(value, x.type.ndim, lengths)
        # It costs more than the Alloc: it reads a tensor for its shape alone.
        return None if row is None else (_joined([Fill(row, lengths[0])]), 2)

    def _row(self, v: Any) -> tuple[Piece, int]:
        """``v`` as one row, found in what it was read from; and the nodes that read it there."""
        if isinstance(v, Constant):
            value = self._one_value(v)
            return (Row(v) if value is None else Fill(value, _ONE)), 0
        node = v.owner
        source = node.inputs[0] if node is not None and node.inputs else None
        if node is not None and isinstance(node.op, Subtensor):
            index = leading_index(node)
            if index is not None and not isinstance(index, slice):
                piece = self.row_at(source, index)
                if piece is not None:
                    return piece, min(_CAP, 1 + self.nodes(source))
        if node is not None and _drops_the_leading_axis(node):
            piece = self.only_row(source)
            if piece is not None:
                return piece, min(_CAP, 1 + self.nodes(source))
        if v.type.ndim:
            rows, nodes = self._asked(v)
            if len(rows) == 1 and isinstance(rows[0], Fill) and not rows[0].value.type.ndim:
                return Fill(rows[0].value, _ONE), nodes
        return Row(v), 0

    def _agree(self, x: Any, y: Any, off: int) -> bool:
        """Whether the rows of ``x`` have the shape of ``y``'s (of ``y``, with ``off`` 1)."""
        if y.type.ndim != x.type.ndim - off:
            return False
        axes = range(1, x.type.ndim)
        return all(self.length(x, k) == self.length(y, k - off) for k in axes)

    def _scalar(self, value: Any) -> Any:
        """The one element of ``value``, a variable of no dimension."""
        while value.owner is not None and isinstance(value.owner.op, DimShuffle | Alloc):
            inner = value.owner.inputs[0]
            if any(n != 1 for n in inner.type.shape):
                break
            value = inner
        if isinstance(value, Constant):
            return self._constant(value.data.reshape(()))
        if not value.type.ndim:
            return value
        return self._kept(value, lambda: value.dimshuffle())

    def _one_value(self, x: Any) -> Any:
        """The scalar that all elements of the constant ``x`` are, None where there is none."""
        data = x.data
        if not data.size or data.size > _LARGE or data.dtype.kind not in "biuf":
            return None
        first = data.reshape(-1)[0]
        signs = np.signbit(data) if data.dtype.kind == "f" else data < 0
        return self._constant(first) if np.all(data == first) and np.ptp(signs * 1) == 0 else None

    def _constant(self, number: Any) -> Any:
        """A scalar constant, the same one for each number."""
        key = number.dtype.name, number.tobytes()
        return self._kept(key, lambda: pt.constant(number, dtype=number.dtype.name))

    def _kept(self, value: Any, make: Callable[[], Any]) -> Any:
        if value not in self._scalars:
            self._scalars[value] = make()
        return self._scalars[value]

    # -- expressions -----------------------------------------------------------------------------

    def cost(self, rows: Rows) -> int:
        """How many nodes `build` takes."""
        return sum(map(self._cost, rows)) + (len(rows) != 1)

    def _cost(self, piece: Piece) -> int:
        if not isinstance(piece, Window):
            return 1 + (self._made.get(piece.row, 0) if isinstance(piece, Row) else 0)
        made = self._made.get(piece.source, 0)
        bounds = self._bounds(piece)
        if bounds is None or (piece.count == _ONE and bounds != (None, None, None)):
            return made + 2
        return made + (bounds != (None, None, None))

    def build(self, rows: Rows, like: Any) -> Any:
        """A tensor of these rows, of the dtype and the trailing shape of ``like``."""
        return self._kept_expression(self._key(rows, like))

    def _kept_expression(self, key: Any) -> Any:
        if key not in self._built:
            self._built[key] = self._expression(*key)
        return self._built[key]

    def spelled(self, x: Any, accept: Callable[[Any], bool]) -> Any:
        """An expression of its own for the rows of ``x``, if it is accepted; theirs from here on."""
        key = self._key(self.of(x), x)
        new = self._expression(*key)
        if not accept(new):
            return None
        self._built[key] = new
        return new

    def _expression(self, rows: Rows, trailing: tuple[Size, ...], dtype: str) -> Any:
        if len(rows) == 1:
            return self._one(rows[0], trailing, dtype)
        if rows:
            parts = [self._kept_expression(((piece,), trailing, dtype)) for piece in rows]
            return pt.join(0, *parts)
        return pt.alloc(np.zeros((), dtype=dtype), 0, *map(self.number, trailing))

    def _key(self, rows: Rows, like: Any) -> Any:
        trailing = tuple(self.length(like, k) for k in range(1, like.type.ndim))
        return rows, trailing, like.type.dtype

    def keep(self, x: Any) -> None:
        """Let ``x`` be the expression for its rows."""
        self._built[self._key(self.of(x), x)] = x

    def first(self, x: Any) -> Any:
        """The first tensor of the rows of ``x`` that was built or asked for, None if it is ``x``."""
        first = self._built.setdefault(self._key(self.of(x), x), x)
        return None if first is x else first

    def _one(self, piece: Piece, trailing: tuple[Size, ...], dtype: str) -> Any:
        if isinstance(piece, Row):
            return pt.shape_padleft(piece.row)
        if isinstance(piece, Fill):
            return pt.alloc(piece.value, self.number(piece.count), *map(self.number, trailing))
        bounds = self._bounds(piece)
        if bounds is None:
            low = piece.start - piece.count + 1
            forwards = Window(piece.source, low, piece.count, 1)
            return self._kept_expression(((forwards,), trailing, dtype))[::-1]
        if piece.count == _ONE and bounds != (None, None, None):
            return pt.shape_padleft(piece.source[self._index(piece)])  # its type says: one row
        return piece.source if bounds == (None, None, None) else piece.source[slice(*bounds)]

    def row(self, piece: Piece, like: Any) -> Any:
        """One row, of the shape of a row of ``like``."""
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
        bound = self._bound(piece.start, self.sizes.length(piece.source))
        return self.number(piece.start) if bound is None else bound

    def _bounds(self, w: Window) -> tuple[Any, Any, Any] | None:
        """The slice of a window in the fewest words, None where one slice cannot say it."""
        n = self.sizes.length(w.source)
        if w.step == 1:
            stop = w.start + w.count
            first = None if w.start == _NONE else self._bound(w.start, n)
            last = None if stop == n else self._bound(stop, n)
            if first is None and w.start != _NONE:
                first = self.number(w.start)
            if last is None and stop != n:
                last = self.number(stop)
            return first, last, None
        stop = w.start - w.count
        first = None if w.start == n - 1 else self._bound(w.start, n)
        last = None if stop.constant == -1 else self._bound(stop, n)
        if (first is None and w.start != n - 1) or (last is None and stop.constant != -1):
            return None  # -1, which a number may be at zero rows, would mean the last row
        return first, last, -1

    def _bound(self, at: Size, n: Size) -> Any:
        """``at`` as a bound: a number, or one counted from the end; None where it may be negative."""
        if at.constant is not None:
            return at.constant if at.constant >= 0 else None
        behind = (at - n).constant
        if behind is not None and behind < 0:
            return behind
        return self.number(at) if self.sizes.at_least(at) else None

    def number(self, size: Size) -> Any:
        """``size`` as a variable, one for each."""
        return self._kept(size, lambda: self._number(size))

    def _number(self, size: Size) -> Any:
        v = self.sizes.variable(size)
        return v if self._guard is None else self._guard(size, v)


_RULES: tuple[tuple[Any, Callable[..., tuple[Rows, int] | None]], ...] = (
    (Subtensor, Pieces._of_subtensor),
    (IncSubtensor, Pieces._of_write),
    (Join, Pieces._of_join),
    (Split, Pieces._of_split),
    (Alloc, Pieces._of_alloc),
    (DimShuffle, Pieces._of_dim_shuffle),
    (MakeVector, Pieces._of_vector),
    (SpecifyShape, Pieces._of_specify_shape),
    (Elemwise, Pieces._of_elemwise),
)


def leading_index(node: Any) -> Any:
    """The index of a node that reads or writes along the leading axis alone, None for any other."""
    indices = node.inputs[2 if isinstance(node.op, IncSubtensor) else 1 :]
    first, *others = tuple(indices_from_subtensor(indices, node.op.idx_list)) or (None,)
    return first if all(i == slice(None) for i in others) else None


def backwards(rows: Rows) -> Rows:
    """The rows in the other order."""
    return _joined([_turned(piece) for piece in reversed(rows)])


def is_zero(piece: Piece) -> bool:
    """Whether all elements are the constant 0."""
    if not isinstance(piece, Fill) or not isinstance(piece.value, Constant):
        return False
    return piece.value.data.size > 0 and not np.any(piece.value.data)


def _drops_the_leading_axis(node: Any) -> bool:
    if not isinstance(node.op, DimShuffle):
        return False
    return tuple(node.op.new_order) == tuple(range(1, node.inputs[0].type.ndim))


def _is_integer(v: Any) -> bool:
    is_number = getattr(v.type, "dtype", "").startswith(("int", "uint", "bool"))
    return is_number and not getattr(v.type, "ndim", 0)


def _turned(piece: Piece) -> Piece:
    if not isinstance(piece, Window):
        return piece
    last = piece.start + (piece.count - 1) * piece.step
    return Window(piece.source, last, piece.count, -piece.step)


def _cut(piece: Piece, start: Size, count: Size) -> Piece | None:
    if isinstance(piece, Window):
        return replace(piece, start=piece.start + start * piece.step, count=count)
    if isinstance(piece, Fill):
        return replace(piece, count=count)
    return piece if start == _NONE and count == _ONE else None


def _repeated(y: Any, piece: Piece, count: Size) -> Piece:
    """The row ``y``, of which ``piece`` is known, written to ``count`` rows."""
    if count == _ONE:
        return piece
    return Fill(piece.value if isinstance(piece, Fill) else y, count)


def _joined(pieces: Iterable[Piece]) -> Rows:
    """Without empty pieces, and those that continue one another as one."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.count == _NONE:
            continue
        if isinstance(piece, Window) and piece.count == _ONE and piece.step == -1:
            piece = replace(piece, step=1)
        both = _continued(found[-1], piece) if found else None
        if both is None:
            found.append(piece)
        else:
            found[-1] = both
    return tuple(found)


def _continued(a: Piece, b: Piece) -> Piece | None:
    if isinstance(a, Window) and isinstance(b, Window) and a.source is b.source:
        steps = {w.step for w in (a, b) if w.count != _ONE} or {1, -1}
        for step in steps if len(steps) == 1 or a.count == b.count == _ONE else ():
            if a.start + a.count * step == b.start:
                return Window(a.source, a.start, a.count + b.count, step)
        return None
    if isinstance(a, Window) or isinstance(b, Window):
        return None
    one = a.row if isinstance(a, Row) else a.value
    two = b.row if isinstance(b, Row) else b.value
    return Fill(one, a.count + b.count) if _same(one, two) else None


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, Constant) and isinstance(b, Constant) and bool(a.equals(b)))
