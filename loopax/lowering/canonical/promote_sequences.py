"""Constants of which a loop reads one row a step  ->  sequences.

    Scan(consts=c) with c[i + k] in the step  ->  Scan(xs=c[k : k + n_steps]) with the row there

Likewise ``c[m - i]``, which becomes a flipped sequence, and ``c[t]`` where ``t`` is a row of an ``arange``.
Further indices stay: ``c[i, j]`` is ``row[j]``. The constant is dropped where nothing else reads it.

An inner loop in the step receives the rows that it reads: ``c[i, j]`` there, with the index ``i`` of the
outer loop, is the ``j``-th entry of a row.

Condition: no index is negative, as it would count from the end; and none is too large, or the loop does
not stop and a check of the length before it raises the IndexError. Only unconditional
reads of a step count, so nothing inside a branch. The number of rows must follow from shapes: a loop whose
trip count is only a value stays as it is, since a backend with static shapes could not slice.

Reason: JAX differentiates sequences far better than indexing into a constant, whose gradient adds an
array as large as the constant at every step.

In the literature: access normalization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import ARange
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.facts import Errors
from loopax.ir import Scan
from loopax.ir.effects import errors
from loopax.ir.ops.checked import Checked
from loopax.ir.replace import replaced
from loopax.ir.sizes import Access, Clipped, DimExpr, Dims, Length, dims_of, read_of, slice_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, replace_outputs

# Other errors that a step may raise where the check of an index is moved in front of the loop.
_ERRORS_BEHIND = Errors.SHAPE | Errors.LENGTH | Errors.INDEX


def promote_sequences(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    dims = dims_of(graph)
    for node in graph.toposort():
        if isinstance(node.op, Scan) and _may(node.op):
            new = _Promotion(node, dims).result()
            if new:
                replace_outputs(graph, new, "promote_sequences")
    map_bodies(graph, promote_sequences)


def _may(op: Scan) -> bool:
    """Whether the step of ``op``, or a loop in it, reads a row of a constant at any index."""
    nodes = op.fgraph.toposort()
    inner = [node.op for node in nodes if isinstance(node.op, Scan)]
    return next(_reads(nodes, {*op.args.consts}), None) is not None or any(map(_may, inner))


def _reads(nodes: Sequence[Apply], consts: set[Variable]) -> Iterator[tuple[Variable, Access]]:
    """The reads ``c[k]`` with an integer ``k`` and ``c`` in ``consts``, with further indices or without."""
    for node in nodes:
        read = read_of(node)
        if read is not None and read.is_row and read.array in consts:
            yield node.outputs[0], read


class _Line(NamedTuple):
    """The integers ``start + sign * i``, one for each step ``i``."""

    sign: int
    start: DimExpr


class _Promotion:
    """The promotion of constants of one loop."""

    def __init__(self, node: Apply, dims: Dims) -> None:
        self.op, self.dims = node.op, dims
        self.loop = OpenLoop.of(node)
        self.inside = Dims()
        self.n = self.any = dims.value(self.loop.n_steps)
        steps = self.n.only_variable
        if isinstance(steps, Clipped) and steps.largest and steps.b == DimExpr():
            self.any = steps.a
        self.consts = {c.inner: c.outer for c in self.loop.consts}
        # Variables of the step that count: the index, and the rows of an ``arange``.
        line_of = {row.inner: _line(dims, row.outer) for row in self.loop.rows}
        self.lines = {v: line for v, line in line_of.items() if line is not None}
        self.lines[self.loop.i] = _Line(1, DimExpr())
        self.nodes = list(toposort(self.loop.outputs()))
        self.new_inputs: dict[Any, Input] = {}

    def result(self) -> dict[Any, Any]:
        """Map the outputs of the node to outputs of one with more sequences; empty if there are none."""
        if not self._has_rows():
            return {}
        loop = self.loop
        steps = self.dims.variable(self.n)
        if steps.type == loop.n_steps.type:  # the length of an arange would keep the arange
            loop.n_steps = steps
        new: dict[Any, Any] = {}
        for entry, read in _reads(self.nodes, {*self.consts}):
            row = self._row(read.array, self._line_of(self.inside.value(read.rows)))
            if row is not None:
                new[entry] = _at(row.inner, read, new)
        for node in self.nodes:
            if isinstance(node.op, Scan) and _may(node.op):
                new |= self._with_rows(node, lambda v: v, lambda row: row.inner)
        if not new:
            return {}
        loop.set_outputs(replaced(loop.outputs(), new))
        promoted = {c for c, _ in self.new_inputs}
        left = promoted & set(ancestors(loop.outputs()))
        loop.consts = [c for c in loop.consts if c.inner not in promoted or c.inner in left]
        loop.rows += self.new_inputs.values()
        return loop.close()

    def _has_rows(self) -> bool:
        """Whether the trip count follows from shapes."""
        if _is_of_shapes(self.n) or (self.op.n_ys and not self.op.stops):
            return True
        return any(self._is_long(row.outer) for row in self.loop.rows)

    def _is_long(self, x: Variable) -> bool:
        return self.dims.length(x) == self.n

    def _with_rows(
        self, node: Apply, around: Callable[[Input], Any], operands: Callable[[Input], Any]
    ) -> dict[Any, Any]:
        """Map the outputs of a loop in the step to outputs of one that is given the rows that it reads.

        ``around`` maps a variable outside of ``node`` to the variable of the step that it equals,
        ``operands`` a row to its operand.
        """
        inner, inside, new = OpenLoop.of(node), Dims(), dict[Any, Any]()
        consts = {c.inner: around(c.outer) for c in inner.consts}
        rows: dict[Any, Input] = {}

        def row_of(row: Input) -> Any:
            if row not in rows:
                rows[row] = Input(row.inner.type(), operands(row))
            return rows[row].inner

        nodes = list(toposort(inner.outputs()))
        for entry, read in _reads(nodes, {c for c, v in consts.items() if v in self.consts}):
            expr = self._around(inside.value(read.rows), consts)
            line = None if expr is None else self._line_of(expr)
            row = self._row(consts[read.array], line, may_check=False)
            if row is not None:
                new[entry] = _at(row_of(row), read, new)
        for n in nodes:
            if isinstance(n.op, Scan) and _may(n.op):
                new |= self._with_rows(n, consts.get, row_of)
        if not new:
            return {}
        inner.set_outputs(replaced(inner.outputs(), new))
        inner.consts += rows.values()
        left = {*ancestors(inner.outputs())}
        inner.consts = [c for c in inner.consts if c.inner in left]
        return inner.close()

    def _around(self, expr: DimExpr, consts: dict[Variable, Variable | None]) -> DimExpr | None:
        """Translate ``expr``, in terms of the constants of a loop in the step, to variables of the step."""
        outside = DimExpr(offset=expr.offset)
        for variable, k in expr.terms:
            of = variable.of if isinstance(variable, Length) else variable
            outer = consts.get(of)
            if outer is None:
                return None
            is_length = isinstance(variable, Length)
            length = self.inside.length(outer, variable.axis) if is_length else None
            outside = outside + (self.inside.value(outer) if length is None else length) * k
        return outside

    def _row(self, c: Variable, line: _Line | None, may_check: bool = True) -> Input | None:
        """The row of a sequence that is ``c`` along ``line``, None if ``c`` has to stay a constant."""
        if line is None:
            return None
        key = c, line
        if key not in self.new_inputs:
            sequence = self._sequence(self.consts[c], line, may_check)
            if sequence is None:
                return None
            self.new_inputs[key] = Input(TensorType(c.type.dtype, c.type.shape[1:])(), sequence)
        return self.new_inputs[key]

    def _line_of(self, expr: DimExpr) -> _Line | None:
        """Express ``expr``, an integer of the step, as a line; None if that is impossible."""
        start, line = DimExpr(offset=expr.offset), None
        for variable, k in expr.terms:
            if variable in self.lines and line is None and k in (1, -1):
                line = _Line(k * self.lines[variable].sign, self.lines[variable].start * k)
            elif variable in self.consts:
                start = start + self.dims.value(self.consts[variable]) * k
            elif isinstance(variable, Length) and variable.of in self.consts:
                start = start + self.dims.length(self.consts[variable.of], variable.axis) * k
            else:
                return None
        return None if line is None else _Line(line.sign, line.start + start)

    def _sequence(self, c: TensorVariable, line: _Line, may_check: bool) -> Any:
        """The rows of ``c`` along ``line``, None where one of them might be out of range."""
        dims, length = self.dims, self.dims.length(c)
        lo = line.start if line.sign > 0 else line.start - self.n + 1
        hi = lo + self.n
        if dims.at_least(-self._if_any(hi)):  # all negative: they count from the end
            lo, hi = lo + length, hi + length
        end = self._if_any(hi)
        if not self._is_known(lo) or not dims.at_least(self._if_any(lo)):
            return None
        fits = dims.at_least(length - end)
        if not fits and not (may_check and self._can_check()):
            return None
        # Without steps both bounds must be equal; without an upper bound, the lower must be at least the
        # length.
        is_last = end == length and self._share(hi) >= 0
        stop = None if is_last else self._bound(hi)
        x = c if lo == DimExpr() and stop is None else c[self._bound(lo) : stop]
        if not fits:
            enough = pt.le(dims.variable(hi), c.shape[0])
            x = Checked(
                IndexError,
                f"{self.op} reads a row past the last one of an array that its step captures: index out "
                "of range. Take fewer steps.",
            )(x, pt.or_(pt.le(self.loop.n_steps, 0), enough))
        return x if line.sign > 0 else x[::-1]

    def _if_any(self, expr: DimExpr) -> DimExpr:
        """Simplify ``expr`` for a loop that takes steps: ``n_steps`` is ``k``, if it is ``max(k, 0)``."""
        return expr + (self.any - self.n) * self._share(expr)

    def _share(self, expr: DimExpr) -> int:
        """The coefficient of ``n_steps`` in ``expr`` if it is ``max(k, 0)``, else 0."""
        return 0 if self.any == self.n else dict(expr.terms).get(next(iter(self.n.terms))[0], 0)

    def _is_known(self, expr: DimExpr) -> bool:
        """Whether ``expr`` follows from shapes and the trip count, which is known."""
        steps = {variable for variable, _ in self.n.terms}
        return all(
            variable in steps or _is_of_shapes(DimExpr.variable(variable))
            for variable, _ in expr.terms
        )

    def _bound(self, expr: DimExpr) -> Any:
        return self.dims.variable(expr) if expr.constant is None else expr.constant

    def _can_check(self) -> bool:
        """Whether nothing else could raise before an index that is too large."""
        return (
            not self.op.stops
            and all(self._is_long(row.outer) for row in self.loop.rows)
            and not any(errors(node) & ~_ERRORS_BEHIND for node in self.nodes)
        )


def _at(row: TensorVariable, read: Access, new: dict[Variable, Variable]) -> Any:
    """The part of the row that ``read`` takes; its other indices may be reads themselves."""
    return replaced([row[read.trailing]], new)[0] if read.trailing else row


def _line(dims: Dims, x: Variable) -> _Line | None:
    """The entries of the sequence ``x`` as a line, None if they do not form one."""
    if getattr(x.type, "ndim", None) != 1 or x.type.dtype not in ("int64", "int32"):
        return None
    if isinstance(x, Constant):
        number = int(x.data[0]) if len(x.data) else 0
        for sign in (1, -1):
            if np.array_equal(x.data, number + sign * np.arange(len(x.data))):
                return _Line(sign, DimExpr(offset=number))
        return None
    op: Any = None if x.owner is None else x.owner.op
    if isinstance(op, ARange):
        first, _, apart = map(dims.value, x.owner.inputs)
        return _Line(1, first) if apart.constant == 1 else None
    read = read_of(x.owner)
    line = None if read is None or read.is_row else _line(dims, read.array)
    if read is None or line is None:
        return None
    rows = slice_of(dims, read.rows, dims.length(read.array))
    if rows is None or rows.step not in (1, -1):
        return None
    begin = rows.first(dims)
    return None if begin is None else _Line(line.sign * rows.step, line.start + begin * line.sign)


def _is_of_shapes(expr: DimExpr) -> bool:
    """Whether ``expr`` follows from numbers and the shapes of tensors alone."""
    return all(isinstance(v, Length) for v in expr.roots())
