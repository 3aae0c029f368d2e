"""Which rows of a trace are read: what `read_last` and `read_rows` ask before they change a loop.

    trace[-1]   trace[n - 1]   trace[-1:][0]   trace[::-1][0]   ->  the last row
    trace[-3:]  trace[n - 3:]  trace[:-4:-1]                    ->  the last 3 rows
    trace[2]    trace[:3]      trace[::-1][-3:]                 ->  the first 3 rows

A read of the last ``k`` rows means the same, its errors included, of a trace of only its last ``k`` or
more rows, however few there are: ``trace[-3:]`` of two rows is both, ``trace[-3]`` raises. So a read is
kept as an index that counts from one end, and can be asked of such a shorter trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.ir.sizes import DimExpr, Dims

Index = tuple[Any, ...]
_FLIP = (slice(None, None, -1),)


@dataclass(frozen=True)
class Read:
    """``out`` is the trace at each index of ``path`` in turn; it is among the first ``rows`` rows.

    With ``back`` it is among the last ones.
    """

    out: Any
    path: tuple[Index, ...]
    back: bool
    rows: int

    def of(self, rows: Any) -> Any:
        """The same read of a trace that is shorter at the other end."""
        for index in self.path:
            rows = rows[index] if index else rows
        return rows

    @property
    def row(self) -> int | None:
        """The number of the row, from -1 down for those from the end; None for a slice."""
        first = self.path[0][0]
        return None if isinstance(first, slice) else int(first)

    def of_row(self, row: Any) -> Any:
        """The same, given the row that it reads."""
        return Read(self.out, (self.path[0][1:], *self.path[1:]), self.back, 0).of(row)


@dataclass
class Reads:
    """All that is asked of a trace: rows, lengths, and (``whole``) whether there is anything else."""

    rows: list[Read]
    shapes: list[Apply]
    whole: bool

    def most(self, back: bool) -> int:
        """How many rows are read from that end."""
        return max((r.rows for r in self.rows if r.back == back), default=0)


def reads_of(graph: FunctionGraph, node: Apply, k: int, dims: Dims) -> Reads:
    """What ``graph`` reads of trace ``k`` of the loop ``node``."""
    op: Any = node.op
    trace = op.split_outputs(node.outputs).traces[k]
    found = Reads([], [], False)
    if isinstance(trace.type, DenseTensorType):
        ends = _Ends(dims, trace_length(node, dims), dims.length(trace))
        _collect(graph, trace, (), False, ends, found)
    else:
        found.whole = True
    return found


def trace_length(node: Apply, dims: Dims) -> DimExpr:
    """How many rows the traces of the loop ``node`` have."""
    op: Any = node.op
    return dims.value(node.outputs[-2] if op.stops else node.inputs[0])


def has_rows(node: Apply, dims: Dims, k: int) -> bool:
    """Whether the traces of the loop ``node`` surely have ``k`` rows."""
    op: Any = node.op
    if op.stops and k > 1:
        return False
    return not k or dims.at_least(dims.value(node.inputs[0]), k)


def _collect(
    graph: FunctionGraph, view: Any, path: tuple[Index, ...], flipped: bool, ends: _Ends, to: Reads
) -> None:
    """Add what is read of ``view``, all rows of a trace, from the last one on if ``flipped``."""
    for node, position in graph.clients.get(view, ()):
        if isinstance(node.op, Shape | Shape_i) and not path:
            to.shapes.append(node)
            continue
        if not isinstance(node.op, Subtensor) or position:
            to.whole = True
            continue
        first, *rest = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        (out,) = node.outputs
        if isinstance(first, slice):
            _slice(graph, out, first, tuple(rest), path, flipped, ends, to)
        else:
            _row(out, ends.at(first), tuple(rest), path, flipped, to)


def _row(out: Any, at: Any, rest: Index, path: Any, flipped: bool, to: Reads) -> None:
    if at is None:
        to.whole = True
        return
    if flipped and all(index == _FLIP for index in path):
        at, path, flipped = -1 - at, (), False
    rows = -at if at < 0 else at + 1
    to.rows.append(Read(out, (*path, (at, *rest)), (at < 0) != flipped, rows))


def _slice(
    graph: FunctionGraph,
    out: Any,
    entry: slice,
    rest: Index,
    path: Any,
    flipped: bool,
    ends: _Ends,
    to: Reads,
) -> None:
    known = ends.slice(entry)
    if known is None:
        to.whole = True
        return
    start, stop, step = known
    if (start, stop) == (None, None) and step in (1, -1):
        flips = step == -1
        if flips or rest:
            path = (*path, (*(_FLIP if flips else (slice(None),)), *rest))
        _collect(graph, out, path, flipped != flips, ends, to)
        return
    window = _window(start, stop, step)
    if window is None:
        to.whole = True
        return
    back, rows = window
    if (
        not path
        and (start, stop, step) in ((-1, None, 1), (None, 1, 1))
        and _only_row(graph, out, (-1 if back else 0, *rest), to)
    ):
        return
    index = (slice(start, stop, None if step == 1 else step), *rest)
    to.rows.append(Read(out, (*path, index), back != flipped, max(rows, 1)))


def _only_row(graph: FunctionGraph, out: Any, index: Index, to: Reads) -> bool:
    """Whether ``out``, a slice of one row, is only read as that row: then it is a read of that row."""
    found = []
    for node, position in graph.clients[out]:
        if not isinstance(node.op, Subtensor) or position:
            return False
        first, *more = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if isinstance(first, slice) or getattr(first, "data", None) not in (0, -1):
            return False
        found.append(Read(node.outputs[0], (index, tuple(more)), index[0] < 0, 1))
    to.rows += found
    return True


def _window(start: int | None, stop: int | None, step: int) -> tuple[bool, int] | None:
    """``(back, rows)``: the end that a slice stays at, and how many rows from there it may take."""
    if step > 0:
        if start is not None and start < 0 and (stop is None or stop < 0):
            return True, -start
        if stop is not None and stop >= 0 and (start is None or start >= 0):
            return False, stop
    else:
        if stop is not None and stop < 0 and (start is None or start < 0):
            return True, -stop - 1
        if start is not None and start >= 0 and (stop is None or stop >= 0):
            return False, start + 1
    return None


class _Ends:
    """Positions as numbers that count from an end: ``n - 2`` of ``n`` rows is -2."""

    def __init__(self, dims: Dims, *lengths: DimExpr) -> None:
        self.dims, self.lengths = dims, lengths
        self.known = lengths[0].constant

    def at(self, v: Any) -> int | None:
        """The row ``v``; None where nobody knows which it is."""
        k = self._number(v)
        if k is None or self.known is None or not -self.known <= k < self.known:
            return k
        other = k - self.known if k >= 0 else k + self.known
        return min(k, other, key=lambda k: -k if k < 0 else k + 1)

    def slice(self, entry: slice) -> tuple[int | None, int | None, int] | None:
        """Start, stop and step; None where nobody knows them."""
        step = 1 if entry.step is None else self.dims.value(entry.step).constant
        if not step:
            return None
        start = None if entry.start is None else self._number(entry.start)
        stop = None if entry.stop is None else self._number(entry.stop, step > 0)
        if (start is None) != (entry.start is None) or (stop is None) != (entry.stop is None):
            return None
        if step > 0:
            start = start or None
            stop = None if stop in (_END, self.known) else stop
        if self.known is not None and step > 0:
            n = self.known
            if start is not None and 0 < start < n and stop is None:
                start -= n
            if stop is not None and -n <= stop < 0 and (start is None or start >= 0):
                stop += n
        return start, stop, step

    def _number(self, v: Any, may_be_end: bool = False) -> Any:
        expr = self.dims.value(v)
        if expr.constant is not None:
            return expr.constant
        for length in self.lengths:
            left = (length - expr).constant
            if left == 0 and may_be_end:
                return _END
            # Of no rows -1 is as much out of range as n - 1; further ones would wrap around.
            if left is not None and (left == 1 or left > 1 and self._has(left)):
                return -left
        return None

    def _has(self, rows: int) -> bool:
        return any(self.dims.at_least(n, rows) for n in self.lengths)


_END = 2**62  # of a slice that takes all rows to the last one
