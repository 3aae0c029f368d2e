"""Tensors whose rows are read in reverse, and equal tensors without the flips.

    x[::-1][::-1]                      x
    x[::-1][a:b], flipped              x[-b:-a]
    concatenate([y, x[::-1]]), flipped concatenate([x, y])          where y has one row

A `Flips` follows a tensor through slices, joins, increments and row-wise ops, down to its *sources*: the
tensors that it cannot look into. The cost of either order of the rows is the number of sources that are
read flipped. Equal rows, single rows and constants have no source: to reverse them costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Alloc
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import joined_rows
from loopax.facts import Structure, facts_of
from loopax.facts.elementwise import is_elementwise
from loopax.facts.rows import by_rows
from loopax.ir.sequences import with_items
from loopax.ir.sizes import Access, Slice, access_of, dims_of, mirrored_row, read_of, slice_of

_SOURCES = 8  # a tensor with more sources than this counts as a source itself
_DEPTH = 40  # so does one that takes more steps to build from its sources
_TRACE = 2  # cost of flipping a loop's trace, whose rows need not be contiguous before


class _Known(NamedTuple):
    """A tensor: its sources and whether each is flipped, its present cost, and how to rebuild it."""

    sources: tuple[tuple[Any, bool], ...]
    cost: int
    depth: int
    parts: tuple[Any, ...]
    make: Callable[[bool], Any]


class Flips:
    """The flips in ``graph``. Answers are cached: make a new instance when the graph has changed.

    Parameters
    ----------
    traces
        The traces of loops that could be reversed: each is a source, and tensors computed from it are
        followed.
    """

    def __init__(self, graph: FunctionGraph, traces: Container[Any] = ()) -> None:
        self.graph = graph
        self.traces = traces
        self.dims = dims_of(graph)
        self._found: dict[Any, _Known] = {}
        self._made: dict[tuple[Any, bool], Any] = {}
        self._deep = 0

    # -- questions -------------------------------------------------------------------------------

    def known(self, v: Variable) -> _Known:
        """Return the sources of ``v``, a tensor with rows, and its flips."""
        known_flips = self._found.get(v)
        if known_flips is None:
            if self._deep > _DEPTH:  # not cached: a query that starts nearer to it may succeed
                return _source(v)
            self._deep += 1
            try:
                known_flips = self._found[v] = self._look(v)
            finally:
                self._deep -= 1
        return known_flips

    def weight(self, source: Variable) -> int:
        """The cost of one flip of ``source``."""
        return _TRACE if source in self.traces else 1

    def cost(self, v: Variable, turned: bool) -> int:
        """The flips needed to get the rows of ``v``, in reverse order if ``turned``."""
        return sum(self.weight(x) for x, flipped in self.known(v).sources if flipped != turned)

    def turned(self, v: Variable) -> Any:
        """Build ``v[::-1]`` with as few flips as possible."""
        known_flips = self.known(v)
        if self.cost(v, True) < known_flips.cost + self._weight_of(known_flips):
            return self._make(v, True)
        return self.straight(v)[::-1]

    def straight(self, v: Variable) -> Any:
        """Build ``v`` with as few flips as possible."""
        return self._make(v, False) if self.saves(v) else v

    def saves(self, v: Variable) -> bool:
        """Whether `straight` has fewer flips than ``v`` as it is."""
        return self.cost(v, False) < self.known(v).cost

    def _make(self, v: Variable, turned: bool) -> Any:
        if (v, turned) not in self._made:  # shared by all readers
            self._made[v, turned] = self.known(v).make(turned)
        return self._made[v, turned]

    def _weight_of(self, known_flips: _Known) -> int:
        return max((self.weight(x) for x, _ in known_flips.sources), default=1)

    def _either(self, v: Variable, turned: bool) -> Any:
        return self.turned(v) if turned else self.straight(v)

    # -- answers ---------------------------------------------------------------------------------

    def _look(self, v: Variable) -> _Known:
        if _is_uniform(v):
            return self._filled(v) or _Known((), 0, 0, (), lambda turned: v)
        if isinstance(v, Constant):
            return _Known((), 0, 0, (), lambda turned: _flipped_constant(v) if turned else v)
        followed = self._followed(v)
        if followed is None or len(followed.sources) > _SOURCES or followed.depth > _DEPTH:
            return _source(v)
        if any(flipped or x in self.traces for x, flipped in followed.sources) or followed.cost:
            return followed
        return _source(v)  # no flip behind it that could be saved

    def _filled(self, v: Variable) -> _Known | None:
        """Analyse ``second(x, c)``, which reads only the shape of ``x``: either order of rows will do."""
        if not is_elementwise(v.owner, ps.Second) or v.type.shape[0] is not None:
            return None
        x, c = v.owner.inputs
        costs = [self.cost(x, turned) for turned in (False, True)]
        saved = self.known(x).cost - min(costs)

        def make(turned: bool) -> Any:
            if saved <= 0:
                return v
            return v.owner.op(self._either(x, costs[1] < costs[0]), c)

        return _Known((), max(saved, 0), 0, (x,), make)

    def _followed(self, v: Variable) -> _Known | None:
        node = v.owner
        if node is None or v in self.traces:
            return None
        op: Any = node.op
        if (read := read_of(node)) is not None:
            return self._read(read)
        if isinstance(op, IncSubtensor):
            return self._increment(node)
        if (pieces := joined_rows(node)) is not None:
            return self._composed(
                pieces, lambda new, turned: pt.join(0, *(new[::-1] if turned else new))
            )
        if (at := self._by_rows(node)) is None:
            return None

        def remade(new: Sequence[Variable], turned: bool) -> Any:
            inputs = with_items(node.inputs, at, new)
            return op.make_node(*inputs).outputs[0]

        return self._composed([node.inputs[k] for k in at], remade)

    def _by_rows(self, node: Apply) -> list[int] | None:
        """The positions of the inputs that ``node`` processes row by row, None if it has none."""
        own = by_rows(node)
        if facts_of(node.op).structure is not Structure.MOVES:
            # With several readers it could be computed once for each order of its rows.
            readers = [reader for reader, _ in self.graph.clients.get(node.outputs[0], ())]
            if sum(facts_of(r.op).structure is not Structure.SHAPE for r in readers) > 1:
                return None
        return own or None

    def _composed(
        self, parts: Sequence[TensorVariable], remade: Callable[[Any, bool], Any]
    ) -> _Known:
        """The flips of ``remade(parts, False)``; ``remade(..., True)`` of reversed parts is its reverse."""
        known = [self.known(x) for x in parts]
        return _Known(
            tuple(source for part in known for source in part.sources),
            sum(part.cost for part in known),
            1 + max((part.depth for part in known), default=0),
            tuple(parts),
            lambda turned: remade([self._either(x, turned) for x in parts], turned),
        )

    # -- slices ----------------------------------------------------------------------------------

    def _slice(self, access: Access) -> Slice | None:
        """The rows that an index selects, None if they are not known or not contiguous."""
        rows = slice_of(self.dims, access.rows, self.dims.length(access.array))
        return rows if rows and rows.step in (1, -1) and rows.is_known else None

    def _index(self, rows: Slice, later: tuple[Any, ...], turned: bool) -> tuple[Any, ...]:
        """The index of these rows, in array order, in their array or in its reverse if ``turned``."""
        rows = rows.mirrored() if turned else rows
        rows = rows if rows.step == 1 else rows.backwards()
        return rows.entry(self.dims, self.dims.variable), *later

    def _read(self, read: Access) -> _Known | None:
        rows = None if read.is_row else self._slice(read)
        if rows is None:
            return None
        known_flips, flipped = self.known(read.array), rows.step == -1

        def make(turned: bool) -> Any:
            turn = turned != flipped
            y, index = self._either(read.array, turn), self._index(rows, read.trailing, turn)
            return y if index == (slice(None),) else y[index]

        return _Known(
            tuple((x, f != flipped) for x, f in known_flips.sources),
            known_flips.cost + self._weight_of(known_flips) * flipped,
            known_flips.depth + 1,
            (read.array,),
            make,
        )

    # -- increments ------------------------------------------------------------------------------

    def _increment(self, node: Apply) -> _Known | None:
        if node.op.inplace or not node.op.idx_list:
            return None
        write, y = access_of(node), node.inputs[1]
        put = pt.set_subtensor if node.op.set_instead_of_inc else pt.inc_subtensor
        if write.is_row:

            def at_one(new: Any, turned: bool) -> Any:
                k = mirrored_row(write.rows) if turned else write.rows
                return put(new[0][(k, *write.trailing)], y)

            return self._composed([write.array], at_one)
        rows = self._slice(write)
        if rows is None:
            return None
        flipped = rows.step == -1
        numbers = sum(not isinstance(k, slice) for k in write.trailing)
        has_rows = y.type.ndim == write.array.type.ndim - numbers

        def make(turned: bool) -> Any:
            by = self._either(y, turned != flipped) if has_rows else y
            place = self._either(write.array, turned)
            return put(place[self._index(rows, write.trailing, turned)], by)

        by = self.known(y) if has_rows else _Known((), 0, 0, (), lambda turned: y)
        whole = self.known(write.array)
        turns = tuple((s, f != flipped) for s, f in by.sources)
        return _Known(
            (*whole.sources, *turns),
            whole.cost + by.cost + flipped,
            1 + max(whole.depth, by.depth),
            (write.array, y),
            make,
        )


def _source(v: Any) -> _Known:
    return _Known(((v, False),), 0, 0, (), lambda turned: v[::-1] if turned else v)


def _is_uniform(v: Variable) -> bool:
    """Whether all rows of ``v`` are equal, as far as its op shows."""
    if v.type.shape[0] in (0, 1):
        return True
    op: Any = None if v.owner is None else v.owner.op
    if isinstance(op, Alloc):
        value = v.owner.inputs[0]
        return value.type.ndim < v.type.ndim or value.type.shape[0] == 1
    if is_elementwise(v.owner, ps.Second):
        return bool(v.owner.inputs[1].type.shape[0] == 1)
    return False


def _flipped_constant(v: Any) -> Any:
    data = np.ascontiguousarray(np.flip(v.data, 0))
    return v if np.array_equal(data, v.data) else v.type.make_constant(data)
