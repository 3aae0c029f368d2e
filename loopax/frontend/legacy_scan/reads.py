"""How a graph reads an array of rows: one row, some of them, or only how many there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Second
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from loopax.ir.compat import joined_rows
from loopax.ir.sizes import Length, asked_length, unconditional_dims_of


@dataclass(frozen=True)
class Read:
    """``variable`` is what is read of an array ``rows``, in one of six ways.

    row, rest
        ``rows[row, *rest]``.
    start, stop
        ``rows[start:stop]``, or ``rows[start:]`` where ``stop`` is None.
    reverse
        ``rows[::-1]``.
    length
        ``rows.shape[0]``.
    filled
        ``full_like(rows, filled)``: its shape alone.
    none of these
        Anything else; ``variable`` is the array itself.
    """

    variable: Any
    row: int | None = None
    rest: tuple[Any, ...] = ()
    start: int | None = None
    stop: int | None = None
    reverse: bool = False
    length: bool = False
    filled: Any = None


def reads(fgraph: FunctionGraph, rows: Variable) -> Iterator[Read]:
    """Every use of ``rows`` in ``fgraph``."""
    for client, position in fgraph.clients.get(rows, ()):
        op: Any = client.op
        if isinstance(op, Shape):
            yield from _of_shape(fgraph, rows, client.outputs[0])
        elif isinstance(op, Shape_i) and op.i == 0:
            yield Read(client.outputs[0], length=True)
        elif isinstance(op, Subtensor) and position == 0:
            read = _indexed(fgraph, rows, client)
            if read.start == 0 and read.stop is None:  # all of it, as `scan` writes a sequence
                yield from reads(fgraph, read.variable)
            else:
                yield read
        elif position == 0 and _is_fill(client):
            yield Read(client.outputs[0], filled=client.inputs[1])
        else:
            yield Read(rows)


def heads(fgraph: FunctionGraph, rows: Variable) -> list[tuple[Variable, int]] | None:
    """Every use of ``rows`` as ``(variable, n)``, ``variable = rows[:n]``; None if there is another.

    Through a join that puts something behind ``rows`` too, as long as that has ``n`` rows or more,
    which the caller knows.
    """
    found = []
    for client, position in fgraph.clients.get(rows, ()):
        op: Any = client.op
        pieces = joined_rows(client)
        if pieces and pieces[0] is rows and all(p is not rows for p in pieces[1:]):
            further = heads(fgraph, client.outputs[0])
            if further is None:
                return None
            found += further
            continue
        if not isinstance(op, Subtensor) or position:
            return None
        read = _indexed(fgraph, rows, client)
        if read.start != 0 or read.stop is None or read.stop < 0:
            return None
        found.append((read.variable, read.stop))
    return found


def _of_shape(fgraph: FunctionGraph, rows: Variable, shape: Variable) -> Iterator[Read]:
    for client, _ in fgraph.clients.get(shape, ()):
        is_length = client.outputs and asked_length(client.outputs[0]) == Length(rows, 0)
        yield Read(client.outputs[0], length=True) if is_length else Read(rows)


def _indexed(fgraph: FunctionGraph, rows: Variable, client: Any) -> Read:
    out, dims = client.outputs[0], unconditional_dims_of(fgraph)
    first, *rest = indices_from_subtensor(client.inputs[1:], client.op.idx_list)
    if not isinstance(first, slice):
        row = dims.value(first).constant
        return Read(rows) if row is None else Read(out, row=row, rest=tuple(rest))
    start = 0 if first.start is None else dims.value(first.start).constant
    stop = None if first.stop is None else dims.value(first.stop).constant
    is_known = start is not None and (first.stop is None or stop is not None)
    step = 1 if first.step is None else dims.value(first.step).constant
    if step == -1 and first.start is None and first.stop is None and not rest:
        return Read(out, reverse=True)
    if rest or not is_known or step != 1:
        return Read(rows)
    return Read(out, start=start, stop=stop)


def _is_fill(client: Any) -> bool:
    """Whether a node is ``second(rows, value)`` with one value for all rows."""
    if not isinstance(getattr(client.op, "scalar_op", None), Second):
        return False
    value = client.inputs[1]
    return bool(value.type.broadcastable[0])
