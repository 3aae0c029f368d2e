"""Reads of an array of rows by a graph: one row, some rows, or only their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Second
from pytensor.tensor.shape import Shape, Shape_i

from loopax.base.upstream.pytensor import joined_rows
from loopax.ir.sizes import (
    Access,
    DimExpr,
    Length,
    Slice,
    asked_length,
    position,
    read_of,
    slice_of,
    unconditional_dims_of,
)


@dataclass(frozen=True)
class Read:
    """A read of an array, ``variable``, in one of five forms.

    row, trailing
        One row, ``row`` counted from the end: -1 is the last one. ``trailing`` is an additional index.
    rows
        Adjacent rows, or all rows backwards.
    length
        The number of rows.
    filled
        ``full_like(array, filled)``, which reads only the shape.
    none of these
        Anything else; ``variable`` is the array itself.
    """

    variable: Any
    row: int | None = None
    trailing: tuple[Any, ...] = ()
    rows: Slice | None = None
    length: bool = False
    filled: Any = None

    @property
    def first(self) -> int | None:
        """The number of the first of ``rows``."""
        return None if self.rows is None else self.rows.start.constant

    @property
    def left(self) -> int | None:
        """The number of rows after the last of ``rows``."""
        return None if self.rows is None else (self.rows.length - self.rows.stop).constant

    @property
    def backwards(self) -> bool:
        """Whether the read is all rows in reverse order."""
        return self.rows is not None and self.rows.step < 0


def reads(fgraph: FunctionGraph, array: Variable) -> Iterator[Read]:
    for client, place in fgraph.clients.get(array, ()):
        op: Any = client.op
        indexed = None if place else read_of(client)
        if isinstance(op, Shape):
            yield from _of_shape(fgraph, array, client.outputs[0])
        elif isinstance(op, Shape_i) and op.i == 0:
            yield Read(client.outputs[0], length=True)
        elif indexed is not None:
            read = _indexed(fgraph, client.outputs[0], indexed)
            if (read.first, read.left) == (0, 0):  # the whole array, as `scan` writes a sequence
                yield from reads(fgraph, read.variable)
            else:
                yield read
        elif place == 0 and _is_fill(client):
            yield Read(client.outputs[0], filled=client.inputs[1])
        else:
            yield Read(array)


def heads(fgraph: FunctionGraph, array: Variable) -> list[tuple[Variable, int]] | None:
    """All uses of ``array`` as ``(variable, n)`` with ``variable = array[:n]``; None if there are others.

    It looks through joins that append to ``array``, provided that ``array`` has at least ``n`` rows, which
    the caller ensures.
    """
    slices = []
    for client, place in fgraph.clients.get(array, ()):
        pieces = joined_rows(client)
        indexed = None if place else read_of(client)
        if pieces and pieces[0] is array and all(p is not array for p in pieces[1:]):
            further = heads(fgraph, client.outputs[0])
            if further is None:
                return None
            slices += further
            continue
        if indexed is None:
            return None
        read = _indexed(fgraph, client.outputs[0], indexed)
        if read.rows is None or read.first != 0 or (n := read.rows.stop.constant) is None:
            return None
        slices.append((read.variable, n))
    return slices


def _of_shape(fgraph: FunctionGraph, array: Variable, shape: Variable) -> Iterator[Read]:
    for client, _ in fgraph.clients.get(shape, ()):
        is_length = client.outputs and asked_length(client.outputs[0]) == Length(array, 0)
        yield Read(client.outputs[0], length=True) if is_length else Read(array)


def _indexed(fgraph: FunctionGraph, out: Variable, read: Access) -> Read:
    dims = unconditional_dims_of(fgraph)
    # Not the static length: a loop that stops early leaves fewer rows.
    length = DimExpr.variable(Length(read.array, 0))
    if read.is_row:
        row = (position(dims, read.rows, length) - length).constant
        return Read(read.array) if row is None else Read(out, row=row, trailing=read.trailing)
    rows = None if read.trailing else slice_of(dims, read.rows, length)
    if rows is None or not (rows.step == 1 or rows.takes_all(dims)):
        return Read(read.array)
    return Read(out, rows=rows)


def _is_fill(client: Apply) -> bool:
    """Whether a node is ``second(array, value)`` with one value for all rows."""
    if not isinstance(getattr(client.op, "scalar_op", None), Second):
        return False
    value = client.inputs[1]
    return bool(value.type.broadcastable[0])
