"""Reads of a legacy Scan's buffers, answered from initial rows, trace and final states.

A buffer is never rebuilt unless something reads all of it: ``out[-1]`` is a final state, ``out[1:]`` the
trace, and if no read needs the trace the loop does not make it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from loopax.importer.legacy_scan.allocation import has_room_for_all
from loopax.importer.legacy_scan.reads import heads, reads
from loopax.ir import FitRows, ScanOuts
from loopax.ir.shapes import lengths
from loopax.ir.sizes import Dims
from loopax.ir.windows import SlidingWindow


@dataclass(frozen=True)
class Answer:
    """The replacement ``value(outs)`` of ``variable``, a read of a buffer.

    ``outs`` are the new loop's outputs; its ``n_done`` is the number of steps taken, whether or not
    the loop can stop before its last one.
    """

    variable: Variable
    value: Callable[..., Any]


@dataclass
class Loop:
    """The loop under construction: pairs of an inner variable and its outer value.

    ``n_steps`` is the number of steps, or a bound on it if ``stop`` may end the loop earlier; ``dims`` are
    the dimensions outside.
    """

    i: Variable
    n_steps: Variable
    dims: Dims
    stop: Variable | None = None
    rows: list[tuple[Any, Any]] = field(default_factory=list)
    states: list[tuple[Any, Any]] = field(default_factory=list)
    consts: list[tuple[Any, Any]] = field(default_factory=list)
    next_states: list[Any] = field(default_factory=list)
    ys: list[Any] = field(default_factory=list)

    def add_states(
        self, inner: list[Variable], inits: list[Variable], nexts: list[Variable]
    ) -> slice:
        """Add states; return their future positions among the finals."""
        at = slice(len(self.states), len(self.states) + len(inner))
        self.states += zip(inner, inits, strict=True)
        self.next_states += nexts
        return at

    def add_window(self, w: SlidingWindow, written: dict[int, Any]) -> slice:
        return self.add_states(w.states, w.inits, w.move(written))

    def add_trace(self, y: Variable) -> int:
        """Add a trace; return its future position among the traces."""
        self.ys.append(y)
        return len(self.ys) - 1


def answer_sot(
    fgraph: FunctionGraph,
    loop: Loop,
    out: Variable,
    w: SlidingWindow,
    at: slice,
    y: Variable,
    buffer: TensorVariable,
    start: Variable,
) -> list[Answer]:
    """Answer reads of a recurrent output: ``w.size`` initial rows ``start``, then the rows of the steps.

    The buffer is never *longer* than initial rows plus steps: `scan` and `grad` allocate exactly
    that and the memory-saving rewrites only shorten it, to its last rows. So its row ``-k``, for
    ``k`` up to ``w.size``, is row ``-k`` of the final window, whatever its length. A loop that stops
    early leaves a buffer that ends with the last row it made.
    """
    full = has_room_for_all(buffer, loop.n_steps, w.size, loop.dims)
    capacity = buffer.shape[0]
    traces: dict[int, int] = {}  # row of the window -> position of its trace
    answers: list[Answer] = []

    def trace(j: int) -> int:
        if j not in traces:
            traces[j] = loop.add_trace(y if j == w.size else w.read(j))
        return traces[j]

    def length(outs: ScanOuts) -> Any:
        n_rows = w.size + outs.n_done
        return n_rows if full else _fitted(loop, capacity, n_rows)

    def final_row(k: int) -> Callable[[ScanOuts], Any]:
        return lambda outs: w.rows_after(outs.finals[at], outs.n_done)[k]

    def rebuilt(outs: ScanOuts) -> Any:
        everything = pt.concatenate([start, outs.traces[traces[w.size]]])
        return everything if full else FitRows()(everything, length(outs))

    def view(rows: Variable, first: int) -> bool:
        """Answer reads of ``rows``, the buffer from row ``first`` on; return whether it is read itself."""
        is_read = False
        for read in reads(fgraph, rows):
            at_row = None if read.first is None else first + read.first
            if read.row is not None and -w.size <= read.row < 0:
                answers.append(Answer(read.variable, _then(final_row(read.row), read.trailing)))
            elif read.length:
                answers.append(
                    Answer(read.variable, lambda o: _rows_from(length(o), first, w.size))
                )
            elif read.filled is not None:
                answers.append(
                    Answer(
                        read.variable,
                        lambda o, v=read.filled: _filled(
                            v, _rows_from(length(o), first, w.size), final_row(-1)(o)
                        ),
                    )
                )
            elif at_row is None:
                is_read = True
            elif read.left == 0 and first == 0 and at_row >= w.size:
                # The last rows of a shortened buffer are the last rows, too.
                wanted = view(read.variable, at_row)
                if wanted and full:
                    k, n = trace(w.size), at_row - w.size
                    answers.append(
                        Answer(
                            read.variable, lambda o, k=k, n=n: o.traces[k][n:] if n else o.traces[k]
                        )
                    )
                is_read = is_read or (wanted and not full)
            elif not full:
                is_read = True
            elif read.left is not None and read.left > 0 and at_row + read.left == w.size:
                # The values of one tap in all steps: ``out[:-1]`` of a SIT-SOT is the state before each
                # step.
                k = trace(at_row)
                answers.append(Answer(read.variable, lambda o, k=k: o.traces[k]))
            else:
                is_read = True
        return is_read

    if view(out, 0):
        trace(w.size)
        answers.append(Answer(out, rebuilt))
    return answers


def answer_nit_sot(
    fgraph: FunctionGraph, loop: Loop, out: Variable, y: Variable, capacity: Variable
) -> list[Answer]:
    """Answer reads of a mapped output, kept in a buffer of ``capacity`` rows."""
    full = loop.dims.value(capacity) == loop.dims.value(loop.n_steps)

    def length(outs: ScanOuts) -> Any:
        n = outs.n_done if full else _fitted(loop, capacity, outs.n_done)
        return pt.as_tensor(n).astype("int64")

    answers: list[Answer] = []
    is_read = False
    for read in reads(fgraph, out):
        if read.length:
            answers.append(Answer(read.variable, length))
        elif read.filled is not None and out.type.ndim == 1:
            answers.append(Answer(read.variable, lambda o, v=read.filled: pt.alloc(v, length(o))))
        else:
            is_read = True
    if is_read:
        k = loop.add_trace(y)
        answers.append(
            Answer(out, lambda o: o.traces[k] if full else FitRows()(o.traces[k], length(o)))
        )
    return answers


def answer_mit_mot(
    fgraph: FunctionGraph,
    loop: Loop,
    out: Variable,
    w: SlidingWindow,
    at: slice,
    leaving: Variable,
    buffer: TensorVariable,
    first: int,
) -> list[Answer]:
    """Answer reads of a MIT-MOT buffer: untouched rows, rows that left, final window, untouched rows."""
    answers: list[Answer] = []
    is_read = False
    # The steps have touched every row from `first` on: no row follows the final window.
    full = loop.dims.length(buffer) == loop.dims.value(loop.n_steps) + first + w.size

    def last(outs: ScanOuts, n: int) -> Any:
        """The last ``n`` rows, the very last one first."""
        rows = w.rows_after(outs.finals[at], outs.n_done)
        return pt.stack(rows[::-1][:n])

    for read in reads(fgraph, out):
        if read.length:
            answers.append(Answer(read.variable, lambda o: buffer.shape[0]))
        elif read.filled is not None:
            answers.append(Answer(read.variable, lambda o, v=read.filled: pt.second(buffer, v)))
        elif read.backwards and full and (last_rows := _last(fgraph, read.variable, w.size)):
            answers += [Answer(v, lambda o, n=n: last(o, n)) for v, n in last_rows]
        else:
            is_read = True
    if not is_read:
        return answers
    k = loop.add_trace(leaving)

    def rebuilt(outs: ScanOuts) -> Any:
        pieces = [buffer[:first]] if first else []
        pieces.append(outs.traces[k])
        pieces += [row[None] for row in w.rows_after(outs.finals[at], outs.n_done)]
        pieces += [] if full else [buffer[first + w.size + outs.n_done :]]
        return pt.concatenate(pieces)

    return [*answers, Answer(out, rebuilt)]


def _last(fgraph: FunctionGraph, rows: Variable, size: int) -> list[tuple[Variable, int]] | None:
    """The uses of ``rows`` if each takes at most its first ``size`` rows, and at least one."""
    slices = heads(fgraph, rows)
    return slices if slices and all(0 < n <= size for _, n in slices) else None


def _fitted(loop: Loop, capacity: Variable, n_made: Variable) -> Any:
    """The final number of rows of a buffer of ``capacity`` rows, after ``n_made`` rows were written.

    Rows that no step wrote are zero, but after an early stop the buffer is cut to the rows written.
    """
    return capacity if loop.stop is None else pt.minimum(capacity, n_made)


def _rows_from(length: TensorVariable, first: int, size: int) -> Any:
    """The length of a slice from row ``first`` on, of ``length`` rows, known to be at least ``size``."""
    n = pt.as_tensor(length - first if first else length).astype("int64")
    return pt.maximum(n, 0) if first > size else n


def _filled(value: Variable, length: Variable, row: TensorVariable) -> Any:
    """Repeat ``value``, with a leading axis of length 1, to ``length`` rows of the shape of ``row``."""
    return pt.alloc(value, length, *lengths(row))


def _then(row: Callable[[ScanOuts], Any], index: tuple[Any, ...]) -> Callable[[ScanOuts], Any]:
    return (lambda outs: row(outs)[index]) if index else row
