"""Reads of rows of a trace, for `read_last` and `read_rows`.

    trace[-1]   trace[n - 1]   trace[-1:][0]   trace[::-1][0]   ->  the last row
    trace[-3:]  trace[n - 3:]  trace[:-4:-1]                    ->  the last 3 rows
    trace[2]    trace[:3]      trace[::-1][-3:]                 ->  the first 3 rows

A read of the last ``k`` rows means the same, its errors included, of a trace of only its last ``k`` or
more rows, however few there are: ``trace[-3:]`` of two rows is both, ``trace[-3]`` raises. So a read is
kept as an index that counts from one end, and can be asked of such a shorter trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import Access, DimExpr, Dims, access_of, position, read_of, slice_of

Index = tuple[Any, ...]


@dataclass(frozen=True)
class Read:
    """A read: ``out`` is the trace at ``index``, then at each index of ``trailing`` within the row.

    ``index`` counts from the first row, or from the last one with ``back``, and selects among ``rows``
    rows.
    """

    out: Any
    index: int | slice
    trailing: tuple[Index, ...]
    back: bool
    rows: int

    @property
    def row(self) -> int | None:
        """The number of the row, negative if counted from the end; None for a slice."""
        return None if isinstance(self.index, slice) else self.index

    def on(self, trace: TensorVariable) -> Any:
        """Apply this read to a trace that lacks rows at the other end."""
        first, *others = self.trailing or ((),)
        value = trace[(self.index, *first)]
        each = () if self.row is not None else (slice(None),)
        for later in others:
            value = value[(*each, *later)]
        return value

    def on_row(self, row: Any) -> Any:
        """Apply this read to the row that it selects."""
        for index in self.trailing:
            row = row[index]
        return row


@dataclass
class Reads:
    """All reads of a trace: its rows and its lengths; ``whole`` is True where anything else is read."""

    rows: list[Read] = field(default_factory=list)
    shapes: list[Apply] = field(default_factory=list)
    whole: bool = False

    def most(self, back: bool) -> int:
        """The number of rows that are read at that end."""
        return max((r.rows for r in self.rows if r.back == back), default=0)


def reads_of(graph: FunctionGraph, node: Apply, k: int, dims: Dims) -> Reads:
    """The reads of trace ``k`` of the loop ``node`` in ``graph``."""
    op: Any = node.op
    trace = op.split_outputs(node.outputs).traces[k]
    if not isinstance(trace.type, DenseTensorType):
        return Reads(whole=True)
    # A row equally near to both ends counts from the end that holds the last steps.
    walk = _Walk(graph, dims, dims.length(trace), (not op.options.reverse, op.options.reverse))
    walk.visit(trace, False, ())
    return walk.reads


def has_rows(node: Apply, dims: Dims, k: int) -> bool:
    """Whether the traces of the loop ``node`` are known to have at least ``k`` rows."""
    op: Any = node.op
    if op.stops and k > 1:
        return False
    return not k or dims.at_least(dims.value(node.inputs[0]), k)


class _Walk:
    """Collects the reads of a trace of ``length`` rows; an element of ``ends`` is True for the back."""

    def __init__(
        self, graph: FunctionGraph, dims: Dims, length: DimExpr, ends: tuple[bool, bool]
    ) -> None:
        self.reads = Reads()
        self._graph, self._dims, self._length, self._ends = graph, dims, length, ends

    def visit(self, view: Variable, flipped: bool, indices: tuple[Index, ...]) -> None:
        """Add the reads of ``view``, which is all rows at ``indices``, last row first if ``flipped``."""
        for node, place in self._graph.clients.get(view, ()):
            read = None if place else read_of(node)
            if isinstance(node.op, Shape | Shape_i) and not indices:
                self.reads.shapes.append(node)
            elif read is None:
                self.reads.whole = True
            else:
                self._add(node.outputs[0], read.rows, flipped, _further(indices, read))

    def _add(
        self, out: Variable, index: Variable | slice, flipped: bool, indices: tuple[Index, ...]
    ) -> None:
        if not isinstance(index, slice):
            at = position(self._dims, index, self._length)
            self._add_row(out, self._length - 1 - at if flipped else at, indices)
            return
        rows = slice_of(self._dims, index, self._length)
        if rows is None:
            self.reads.whole = True
            return
        rows = rows.mirrored() if flipped else rows
        low, high = rows.span
        if rows.takes_all(self._dims):
            self.visit(out, rows.step < 0, indices)
        elif (high - low).constant == 1 and self._is_read_as_row(out):
            for client, _ in self._graph.clients[out]:
                self._add_row(client.outputs[0], low, _further(indices, access_of(client)))
        else:
            ends = {back: rows.at_end(back) for back in self._ends}
            self._add_nearest(
                [Read(out, k[0], indices, back, max(k[1], 1)) for back, k in ends.items() if k]
            )

    def _is_read_as_row(self, view: Variable) -> bool:
        """Whether every reader of ``view``, at most one row, reads exactly that row."""
        for node, place in self._graph.clients[view]:
            read = None if place else read_of(node)
            if read is None or not read.is_row or getattr(read.rows, "data", None) not in (0, -1):
                return False
        return True

    def _add_row(self, out: Variable, at: DimExpr, indices: tuple[Index, ...]) -> None:
        ends = {back: (at - self._length if back else at).constant for back in self._ends}
        self._add_nearest(
            [
                Read(out, k, indices, back, -k if back else k + 1)
                for back, k in ends.items()
                if k is not None and (k < 0) == back
            ]
        )

    def _add_nearest(self, ways: list[Read]) -> None:
        """Add the form of a read that takes the fewest rows; without one, mark the trace as whole."""
        if ways:
            self.reads.rows.append(min(ways, key=lambda read: read.rows))
        else:
            self.reads.whole = True


def _further(indices: tuple[Index, ...], read: Access) -> tuple[Index, ...]:
    return (*indices, read.trailing) if read.trailing else indices
