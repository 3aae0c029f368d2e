"""Typed lists of tensors: traces whose length or row shape is only known at the end.

A list is a buffer with room to spare, and the number of rows in use. The first row decides the shape of
all, as `Stack` would have it anyway; the buffer doubles when it is full.
"""

from __future__ import annotations

from pytensor.typed_list import Append, GetItem, Length, Reverse

from loopax.ir import Stack
from loopax.numba_backend.emitter import Emitter, Site, rule
from loopax.numba_backend.literals import as_dim, dtype_name, joined
from loopax.numba_backend.source import tuple_of
from loopax.numba_backend.uses import READS_ONCE
from loopax.numba_backend.values import Array, Dim, Rows, Value, Virtual, small


def copied(emit: Emitter, rows: Rows) -> Rows:
    """A list of its own, that may be appended to."""
    return Rows(
        emit.temp(f"{rows.name}.copy()", "rows"), emit.temp(rows.count, "n"), rows.ndim, rows.dtype
    )


@rule(Append)
def append(site: Site, rows: Rows, row: Value) -> Rows:
    emit = site.emit
    if site.node not in emit.in_place:
        rows = copied(emit, rows)
    name, count = rows.name, rows.count
    shape = tuple_of(["4", *map(str, row.shape)])
    with emit.block(f"if {count} == 0:"):
        emit.line(f"{name} = np.empty({shape}, {dtype_name(rows.dtype)})")
    with emit.block(f"elif {count} == {name}.shape[0]:"):
        emit.line(f"{name} = grown({name})")
    for k, n in enumerate(row.shape):
        with emit.block(f"if {name}.shape[{k + 1}] != {n}:"):
            emit.line('raise ValueError("The rows of a trace differ in shape: pad them to one")')
    row = row if emit.is_small(row.shape) else emit.indexable(row)
    with emit.loops(row.shape) as indices:
        for at in indices:
            emit.line(f"{name}[{joined([count, *at])}] = {emit.read(row, at)}")
    emit.line(f"{count} += 1")
    return rows


READS_ONCE[Append] = lambda node, position: True


@rule(Stack)
def stack(site: Site, rows: Rows, *dims: Value) -> Array:
    emit = site.emit
    name = emit.temp(f"{rows.name}[: {rows.count}]", "a")
    shape: list[Dim] = [as_dim(emit.scalar(n)) for n in dims]
    with emit.block(f"if {rows.count} == 0:"):
        emit.line(
            f"{name} = np.empty({tuple_of(['0', *map(str, shape)])}, {dtype_name(rows.dtype)})"
        )
    for k, n in enumerate(shape):
        with emit.block(f"if {name}.shape[{k + 1}] != {n}:"):
            emit.line(
                'raise ValueError("A row of a list does not have the shape that is expected")'
            )
    return Array(name, (emit.temp(rows.count, "n"), *shape), rows.dtype)


@rule(Reverse)
def reverse(site: Site, rows: Rows) -> Rows:
    emit = site.emit
    name = emit.temp(f"{rows.name}[:{rows.count}][::-1].copy()", "rows")
    return Rows(name, emit.temp(rows.count, "n"), rows.ndim, rows.dtype)


@rule(Length)
def length(site: Site, rows: Rows) -> Value:
    return small(site.emit.temp(f"np.int64({rows.count})"), "int64")


@rule(GetItem)
def item(site: Site, rows: Rows, i: Value) -> Value:
    emit = site.emit
    k = emit.temp(f"index({emit.scalar(i)}, {rows.count})", "k")
    shape = tuple(
        emit.temp(f"{rows.name}.shape[{axis + 1}]", "n") if n is None else n
        for axis, n in enumerate(site.out.type.shape)
    )
    # The list may grow into another buffer before this is read.
    name = emit.temp(rows.name, "a")
    return Virtual(shape, rows.dtype, lambda at: emit.temp(f"{name}[{joined([k, *at])}]"))
