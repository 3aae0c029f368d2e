"""What a graph reads of a legacy Scan's buffers, answered from initial rows, trace and final states.

A buffer is never rebuilt unless somebody reads all of it: ``out[-1]`` is a final state, ``out[1:]``
the trace, and where no read needs the trace the loop does not make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add, Cast
from pytensor.tensor.basic import AllocEmpty, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from loopax.frontend.windows import Window
from loopax.ir import FitRows


@dataclass(frozen=True)
class Answer:
    """``value(finals, traces)`` takes the place of ``variable``, a read of a buffer."""

    variable: Variable
    value: Callable[[Any, Any], Any]


@dataclass
class Loop:
    """The loop under construction: pairs of (variable inside, what it is outside)."""

    i: Variable
    n_steps: Variable
    rows: list[tuple[Any, Any]] = field(default_factory=list)
    states: list[tuple[Any, Any]] = field(default_factory=list)
    next_states: list[Any] = field(default_factory=list)
    ys: list[Any] = field(default_factory=list)

    def add_states(self, inner: list[Any], inits: list[Any], nexts: list[Any]) -> slice:
        """Add states; where they will lie among the finals."""
        at = slice(len(self.states), len(self.states) + len(inner))
        self.states += zip(inner, inits, strict=True)
        self.next_states += nexts
        return at

    def add_window(self, w: Window, written: dict[int, Any]) -> slice:
        return self.add_states(w.states, w.inits, w.move(written))

    def add_trace(self, y: Any) -> int:
        """Add a trace; where it will lie among the traces."""
        self.ys.append(y)
        return len(self.ys) - 1


def answer_sot(
    fgraph: FunctionGraph,
    loop: Loop,
    out: Any,
    w: Window,
    at: slice,
    y: Any,
    buffer: Any,
    start: Any,
) -> list[Answer]:
    """Reads of a recurrent output: ``w.size`` initial rows ``start``, then those the steps made.

    The buffer is never *longer* than initial rows plus steps: `scan` and `grad` allocate exactly
    that and the memory-saving rewrites only shorten it, to its last rows. So its row ``-k``, for
    ``k`` up to ``w.size``, is row ``-k`` of the final window, whatever its length.
    """

    def final_row(k: int) -> Callable[[Any, Any], Any]:
        return lambda finals, traces: w.rows_after(finals[at], loop.n_steps)[k]

    answers: list[Answer] = []
    whole: list[Variable] = []
    after: list[tuple[Variable, int]] = []
    full = _is_full(buffer, loop.n_steps, w.size)
    for read in _reads(fgraph, out):
        if read.row is not None and -w.size <= read.row < 0:
            answers.append(Answer(read.variable, _then(final_row(read.row), read.rest)))
        elif full and read.start is not None and read.start >= w.size:
            wanted = list(_reads(fgraph, read.variable))
            if wanted and all(r.row is not None and -w.size <= r.row < 0 for r in wanted):
                answers += [Answer(r.variable, _then(final_row(r.row), r.rest)) for r in wanted]
            else:
                after.append((read.variable, read.start - w.size))
        else:
            whole.append(out)
    if not after and not whole:
        return answers
    k = loop.add_trace(y)
    for variable, skipped in after:
        answers.append(Answer(variable, lambda f, t, n=skipped: t[k][n:] if n else t[k]))
    if whole:
        rows = buffer.shape[0]

        def rebuilt(finals: Any, traces: Any) -> Any:
            everything = pt.concatenate([start, traces[k]])
            return everything if full else FitRows()(everything, rows)

        answers.append(Answer(out, rebuilt))
    return answers


def answer_nit_sot(
    fgraph: FunctionGraph, loop: Loop, out: Any, y: Any, length: Any
) -> list[Answer]:
    """Reads of a mapped output, kept in a buffer of ``length`` rows."""
    if not fgraph.clients.get(out):
        return []
    k = loop.add_trace(y)
    if _same(length, loop.n_steps):
        return [Answer(out, lambda finals, traces: traces[k])]
    return [Answer(out, lambda finals, traces: FitRows()(traces[k], length))]


def answer_mit_mot(
    fgraph: FunctionGraph,
    loop: Loop,
    out: Any,
    w: Window,
    at: slice,
    leaving: Any,
    buffer: Any,
    first: int,
) -> list[Answer]:
    """Reads of a MIT-MOT buffer: untouched rows, rows that left, the final window, untouched rows."""
    if not fgraph.clients.get(out):
        return []
    k = loop.add_trace(leaving)

    def rebuilt(finals: Any, traces: Any) -> Any:
        last = w.rows_after(finals[at], loop.n_steps)
        pieces = [buffer[:first]] if first else []
        pieces += [traces[k], *[row[None] for row in last], buffer[first + w.size + loop.n_steps :]]
        return pt.concatenate(pieces)

    return [Answer(out, rebuilt)]


def initial_rows(buffer: Any, size: int) -> Any:
    """The first ``size`` rows of a buffer: what it was made from, where that can be seen."""
    made = _expanded(buffer)
    if made is not None:
        rows, stop, _ = made
        # `scan` writes ``rows`` whole, ``empty[: rows.shape[0]]``; a rewrite folds that to `size`.
        if _constant(stop) in (None, size):
            return rows
    return buffer[:size]


# -- recognising reads and buffers -------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """``variable = buffer[row, *rest]`` or ``buffer[start:]``; neither where it is something else."""

    variable: Variable
    row: int | None = None
    start: int | None = None
    rest: tuple[Any, ...] = ()


def _reads(fgraph: FunctionGraph, out: Variable) -> Iterator[_Read]:
    for client, position in fgraph.clients.get(out, ()):
        if isinstance(client.op, Subtensor) and position == 0:
            first, *rest = indices_from_subtensor(client.inputs[1:], client.op.idx_list)
            if isinstance(first, slice):
                start, step = _constant(first.start), _constant(first.step)
                plain = first.stop is None and (first.step is None or step == 1) and not rest
                yield _Read(client.outputs[0], start=start if plain else None)
            else:
                yield _Read(client.outputs[0], row=_constant(first), rest=tuple(rest))
        else:
            yield _Read(out)


def _then(row: Callable[[Any, Any], Any], rest: tuple[Any, ...]) -> Callable[[Any, Any], Any]:
    return (lambda finals, traces: row(finals, traces)[rest]) if rest else row


def _constant(v: Any) -> int | None:
    if isinstance(v, int):
        return v
    v = _uncast(v)
    return int(v.data) if isinstance(v, Constant) and v.type.ndim == 0 else None


def _uncast(v: Any) -> Any:
    while getattr(v, "owner", None) is not None:
        op = v.owner.op
        is_cast = isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast)
        if not is_cast and not isinstance(op, ScalarFromTensor | TensorFromScalar):
            break
        v = v.owner.inputs[0]
    return v


def _same(a: Any, b: Any) -> bool:
    a, b = _uncast(a), _uncast(b)
    if isinstance(a, Constant) and isinstance(b, Constant):
        return bool(a.data == b.data)
    return a is b


def _expanded(buffer: Any) -> tuple[Any, Any, Any] | None:
    """``(rows, stop, total)`` where ``buffer`` is ``set_subtensor(empty(total, ...)[:stop], rows)``."""
    node = buffer.owner
    if node is None or not isinstance(node.op, IncSubtensor) or not node.op.set_instead_of_inc:
        return None
    base, rows, *indices = node.inputs
    if base.owner is None or not isinstance(base.owner.op, AllocEmpty):
        return None
    (first, *rest) = indices_from_subtensor(indices, node.op.idx_list)
    if rest or not isinstance(first, slice) or first.start is not None or first.step is not None:
        return None
    return rows, first.stop, base.owner.inputs[0]


def _is_full(buffer: Any, n_steps: Any, size: int) -> bool:
    """Whether ``buffer`` provably has ``n_steps + size`` rows, as `scan` allocates it."""
    made = _expanded(buffer)
    if made is None:
        return False
    _, stop, total = made
    total = _uncast(total)
    if isinstance(total, Constant) and isinstance(n_steps, Constant):
        return bool(total.data == n_steps.data + size)
    if total.owner is None or not isinstance(getattr(total.owner.op, "scalar_op", None), Add):
        return False
    a, b = total.owner.inputs[:2]
    return len(total.owner.inputs) == 2 and (
        (_same(a, n_steps) and _is_size(b, stop, size))
        or (_same(b, n_steps) and _is_size(a, stop, size))
    )


def _is_size(v: Any, stop: Any, size: int) -> bool:
    return _constant(v) == size or _uncast(v) is _uncast(stop)
