"""Reshuffling of rows between loops, left by gradients of gradients -> the rows that result.

    set_subtensor(zeros(5)[1:], t)[::-1][1:]   ->  t[:-1][::-1], zeros(1)
    second(trace, 0.0)                         ->  alloc(0.0, n_steps)
    alloc(1.0, n) * 2 * x, of n rows           ->  2 * x
    x[3:-6:-1], x[:4], of a tensor x of 4 rows ->  x[::-1], x
    sum(concatenate([zeros(3), row[None]]))    ->  row
    add(1, n) - 1                              ->  n

Condition: every index is proven in range and every shape proven to fit, so that no error gets lost, and
the rows can be expressed in fewer nodes, or by a shorter slice.

Reason: PyTensor's gradients write one cotangent into zeros of the shape of the array that was read,
reverse, slice and add them, once more for each derivative. A later loop then reads a sequence of many nodes
that depend on other loops, although it is only zeros, a constant or a trace.

A value that no row holds any more is not computed, and does not raise: as in `remove_unused`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import is_elementwise
from loopax.ir import Scan
from loopax.ir.sizes import DimExpr, Window, asked_length, read_of
from loopax.ir.sizes.analysis import is_integer
from loopax.lowering.access.index_facts import IndexFacts
from loopax.lowering.access.pieces import Pieces, drops_leading_axis
from loopax.lowering.access.row_pieces import ONE, Fill, Piece, is_zero
from loopax.lowering.analysis.checked_steps import is_checked
from loopax.lowering.bodies import map_bodies, with_nodes

# Readers for which a more precise type is harmless. Others would broadcast along a length that is now known
# to be 1, where the old type made that an error.
_BROADCASTING_IS_NO_MATTER = (Scan, Subtensor, DimShuffle, Join, Split, Sum, Shape, Shape_i)


_SWEEPS = 4  # a third finds more where a chain of joins is long; a fourth has never found anything
_FEW = 4  # the most loops of a second derivative: with so few, one sweep was always enough


def simplify_gradients(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    for _ in range(_SWEEPS):
        if not any(map(_is_read_or_written, graph.apply_nodes)):
            break
        sweep = _Sweep(graph)
        sweep.run()
        # A simplification late in a sweep may enable one of a node that was visited early.
        many = sum(isinstance(node.op, Scan) for node in graph.apply_nodes) > _FEW
        if not (sweep.stale or (sweep.changed and many)):
            break
    map_bodies(graph, simplify_gradients, with_nodes(_is_read_or_written))


def _is_read_or_written(node: Apply) -> bool:
    """Whether ``node`` reads, writes, joins or fills rows: without one the pass has nothing to do."""
    op: Any = node.op
    if is_elementwise(node, ps.Second):
        return True
    if isinstance(op, DimShuffle):
        return sum(k != "x" for k in op.new_order) < node.inputs[0].type.ndim
    return isinstance(op, Subtensor | IncSubtensor | Join | Split | Alloc | Shape | Shape_i | Sum)


class _Sweep:
    """One sweep over a graph, from the inputs to the outputs."""

    def __init__(self, graph: FunctionGraph) -> None:
        self.graph = graph
        self.facts = IndexFacts(graph)
        self.dims = self.facts.dims
        self.pieces = Pieces(self.dims, self.facts.guarded)
        self.changed = False
        self.stale = False  # whether an answer depends on a length that is better known by now

    def run(self) -> None:
        for node in self.graph.toposort():
            for v in node.outputs:
                if node in self.graph.apply_nodes and self.graph.clients.get(v):
                    new = self._simpler(v, node)
                    if new is not None:
                        self._replace(v, new)
        self.facts.keep_errors()

    def _replace(self, old: Variable, new: Variable) -> None:
        if new.type.dtype != old.type.dtype or new is old:
            return
        if isinstance(old.type, DenseTensorType) and not self._may_stand_for(old, new):
            if old.type.ndim:
                self.pieces.keep(self.pieces.rows(old), old)
            return
        pairs = [(old, old.type.filter_variable(new))]
        self.graph.replace_all(pairs, reason="simplify_gradients", import_missing=True)
        self.changed = True
        self.stale |= self.dims.is_unknown(old)

    def _may_stand_for(self, old: Variable, new: Variable) -> bool:
        if not old.type.is_super(new.type):
            return False
        before, after = old.type.shape, new.type.shape
        if all(m == 1 or n != 1 for m, n in zip(before, after, strict=True)):
            return True
        readers = [client.op for client, _ in self.graph.clients[old]]
        return all(isinstance(op, _BROADCASTING_IS_NO_MATTER) for op in readers)

    def _simpler(self, v: Variable, node: Apply) -> Any:
        """A simpler form of ``v``, None if there is none."""
        op: Any = node.op
        if op.destroy_map or isinstance(op, CheckAndRaise):
            return None
        if is_integer(v) and not getattr(v.type, "ndim", 0):
            return self._number(v, node)
        if not isinstance(v.type, DenseTensorType):
            return None
        if is_elementwise(node, ps.Second) and not v.type.ndim:
            return None if is_checked(node.inputs[0]) else node.inputs[1]
        if isinstance(op, Sum):
            return self._sum(v, node)
        if is_elementwise(node, ps.Mul) and v.type.ndim:
            product = self._product(v, node)
            if product is not None:
                return product
        if (read := read_of(node)) is not None and read.is_row and read.is_whole:
            return self._row(v, node, self.pieces.row_at(read.array, read.rows))
        if drops_leading_axis(node):
            return self._row(v, node, self.pieces.only_row(node.inputs[0]))
        return self._rows(v, node)

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, v: Variable, node: Apply) -> Any:
        if not v.type.ndim or not isinstance(node.op, _STRUCTURE):
            return None
        if is_elementwise(node) and not self._rows_are_read(v):
            return None
        rows, before = self.pieces.rows(v), self.pieces.nodes(v)
        if not rows and any(x.owner is not None for x in node.inputs[:1]):
            return None  # it has no rows and may raise: nothing to gain by dropping the error
        trailing = [self.pieces.length(v, k) for k in range(1, v.type.ndim)]
        if not before or any(self.pieces.hangs_on(n, v) for n in trailing):
            return None
        cost = self.pieces.cost(rows)
        if cost < before:
            return self.pieces.build(rows, v)
        first = self.pieces.first(rows, v)
        if first is v and cost == before and isinstance(node.op, Subtensor):
            return self.pieces.spelled(rows, v, lambda new: _is_shorter(new, node))
        return first

    def _rows_are_read(self, v: Variable) -> bool:
        """Whether ``v`` has readers of rows. `stabilize` finds softmax by its ``second``, not by a fill."""
        return any(
            isinstance(reader.op, Scan | Subtensor | IncSubtensor | Join | Split)
            for reader, _ in self.graph.clients[v]
        )

    def _row(self, v: Variable, node: Apply, piece: Piece | None) -> Any:
        """A simpler form of ``v``, which reads one row of a tensor: ``piece``."""
        if piece is None:
            return None
        source = node.inputs[0]
        if isinstance(piece, Window) and piece.source is source:
            new = self.pieces.row(piece, source)
            return new if isinstance(node.op, Subtensor) and _is_shorter(new, node) else None
        if isinstance(piece, Fill) and piece.value.type.ndim != v.type.ndim:
            if not self.pieces.nodes(source):
                return None
        return self.pieces.row(piece, source)

    def _sum(self, v: Variable, node: Apply) -> Any:
        op: Any = node.op
        x = node.inputs[0]
        if not x.type.ndim or not (op.axis == (0,) or (op.axis is None and x.type.ndim == 1)):
            return None
        rows = self.pieces.rows(x)
        left = [piece for piece in rows if not is_zero(piece)]
        if len(left) == 1 and left[0].count == ONE:
            return self.pieces.row(left[0], x).astype(v.type.dtype)
        if not left or len(left) == len(rows):
            return None
        if self.pieces.cost(tuple(left)) > self.pieces.nodes(x):
            return None
        return op(self.pieces.build(tuple(left), x))

    def _product(self, v: Variable, node: Apply) -> Any:
        """Simplify a product with a constant fill: multiply by the number, or drop it if it is 1."""
        values = [self._factor(x) for x in node.inputs]
        others = [x for x, value in zip(node.inputs, values, strict=True) if value is None]
        if len(others) == len(node.inputs) or not self._span(others, node.inputs):
            return None
        kept = [
            x if value is None else value.reshape((1,) * v.type.ndim)
            for x, value in zip(node.inputs, values, strict=True)
            if value is None or value != 1
        ]
        new: Any = node.op(*map(pt.as_tensor, kept)) if len(kept) > 1 else kept[0]
        return new if new.type.dtype == v.type.dtype else None

    def _factor(self, x: Variable) -> Any:
        """The constant that fills ``x``, None if there is none or ``x`` has a single element."""
        if all(n == 1 for n in x.type.shape):
            return None
        value = self.pieces.uniform(x)
        return value.data if isinstance(value, Constant) else None

    def _span(self, some: list[Variable], spans: Sequence[Variable]) -> bool:
        """Whether the factors ``some`` of ``spans`` have the shape of the product, and all shapes agree."""
        for axis in range(spans[0].type.ndim):
            long = [x for x in spans if x.type.shape[axis] != 1]
            lengths = {self.pieces.length(x, axis) for x in long}
            if long and (len(lengths) > 1 or not any(x.type.shape[axis] != 1 for x in some)):
                return False
        return True

    # -- numbers ---------------------------------------------------------------------------------

    def _number(self, v: Variable, node: Apply) -> Any:
        """A simpler form of a length, or of arithmetic with lengths."""
        if self.pieces.is_guarded(v):
            return None
        if is_elementwise(node, ps.Second):
            return node.inputs[1]
        expr = self.dims.value(v)
        if expr.constant is not None:
            return v.type.make_constant(np.asarray(expr.constant).astype(v.type.dtype)[()])
        if isinstance(node.op, ScalarFromTensor) or v.type.dtype != "int64":
            return None
        if not isinstance(v.type, DenseTensorType):
            return None
        asked = asked_length(v)
        if asked is None:
            same = expr.only_variable
            simpler = isinstance(same, Variable) and same is not v
        else:
            simpler = expr != DimExpr.variable(asked) and self._fits(asked.of)
        return self.pieces.number(expr) if simpler else self.dims.first(expr, v)

    def _fits(self, x: Variable) -> bool:
        """Whether ``x`` is known not to raise for the lengths of its inputs."""
        node = x.owner
        if node is None or not isinstance(x.type, DenseTensorType) or not x.type.ndim:
            return False
        if isinstance(node.op, Scan) or self.pieces.nodes(x):
            return True
        if not is_elementwise(node):
            return False
        for axis in range(x.type.ndim):
            spanning = [u for u in node.inputs if u.type.shape[axis] != 1]
            if len({self.pieces.length(u, axis) for u in spanning}) > 1:
                return False
        return True


_STRUCTURE = (
    Subtensor,
    IncSubtensor,
    Join,
    Split,
    Alloc,
    DimShuffle,
    MakeVector,
    SpecifyShape,
    Elemwise,
)


def _is_shorter(new: Variable, node: Apply) -> bool:
    """Whether ``new`` expresses the read ``node`` in fewer words."""
    return _words(new.owner) < _words(node)


def _words(node: Apply) -> int:
    read = read_of(node)
    count = 0
    for entry in () if read is None else read.index:
        bounds = (
            (entry.start, entry.stop, entry.step) if isinstance(entry, slice) else (entry, None)
        )
        count += sum(0 if b is None else 1 if isinstance(b, Constant) else 2 for b in bounds)
    return count
