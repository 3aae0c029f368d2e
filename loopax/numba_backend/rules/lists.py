"""Typed lists: traces of tensors in one buffer, all others as Numba's lists.

A trace whose length or row shape is only known at the end is `Rows`: a buffer with room to spare, and
the number of rows in use. The first row decides the shape of all, as `Stack` would have it anyway; the
buffer doubles when it is full. Only a loop makes one. The lists of users, and those of what is no
tensor, are `Opaque`: their rows may differ in shape. A row in a list is never written to, so that two
lists may have it; whoever takes a row out of a list copies it before a change.
"""

from __future__ import annotations

from typing import Any

from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import Append, Extend, GetItem, Insert, Length, MakeList, Reverse

from loopax.ir import Stack, Unstack
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.literals import as_dim, dtype_name, joined
from loopax.numba_backend.emit.opaque import as_argument, as_element, as_list
from loopax.numba_backend.emit.source import tuple_of
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Dim, Opaque, Rows, Value, Virtual, small

# -- traces ----------------------------------------------------------------------------------------


def copied(emit: Emitter, rows: Rows) -> Rows:
    """A trace of its own, that may be appended to."""
    return Rows(
        emit.temp(f"{rows.name}.copy()", "rows"), emit.temp(rows.count, "n"), rows.ndim, rows.dtype
    )


@rule(Append)
def append(site: Site, rows: Rows | Opaque, row: Any) -> Rows | Opaque:
    emit = site.emit
    if isinstance(rows, Opaque):
        made = _changeable(site, rows)
        emit.line(f"{made.name}.append({_element(site, row)})")
        return made
    if not site.in_place:
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
def stack(site: Site, rows: Rows | Opaque, *dims: Value) -> Array:
    emit = site.emit
    shape: list[Dim] = [as_dim(emit.scalar(n)) for n in dims]
    message = 'raise ValueError("A row of a list does not have the shape that is expected")'
    if isinstance(rows, Opaque):
        return _stacked(site, rows, shape, message)
    name = emit.temp(f"{rows.name}[: {rows.count}]", "a")
    with emit.block(f"if {rows.count} == 0:"):
        emit.line(
            f"{name} = np.empty({tuple_of(['0', *map(str, shape)])}, {dtype_name(rows.dtype)})"
        )
    for k, n in enumerate(shape):
        with emit.block(f"if {name}.shape[{k + 1}] != {n}:"):
            emit.line(message)
    return Array(name, (emit.temp(rows.count, "n"), *shape), rows.dtype)


def _stacked(site: Site, rows: Opaque, shape: list[Dim], message: str) -> Array:
    emit, dtype = site.emit, site.out.type.dtype
    n = emit.temp(f"len({rows.name})", "n")
    name = emit.temp(f"np.empty({tuple_of([n, *map(str, shape)])}, {dtype_name(dtype)})", "a")
    i = emit.source.fresh("i")
    with emit.block(f"for {i} in range({n}):"):
        if shape:
            with emit.block(f"if {rows.name}[{i}].shape != {tuple_of(list(map(str, shape)))}:"):
                emit.line(message)
        emit.line(f"{name}[{i}] = {rows.name}[{i}]" + ("" if shape else ".item()"))
    return Array(name, (n, *shape), dtype)


@rule(Unstack)
def unstack(site: Site, x: Value) -> Rows:
    emit = site.emit
    n = emit.temp(str(x.shape[0]), "n")
    return Rows(emit.temp(f"{emit.dense(x).name}.copy()", "rows"), n, len(x.shape) - 1, x.dtype)


# -- both ------------------------------------------------------------------------------------------


@rule(Reverse)
def reverse(site: Site, rows: Rows | Opaque) -> Rows | Opaque:
    emit = site.emit
    if isinstance(rows, Opaque):
        made = _changeable(site, rows)
        emit.line(f"{made.name}.reverse()")
        return made
    name = emit.temp(f"{rows.name}[:{rows.count}][::-1].copy()", "rows")
    return Rows(name, emit.temp(rows.count, "n"), rows.ndim, rows.dtype)


@rule(Length)
def length(site: Site, rows: Rows | Opaque) -> Value:
    count = f"len({rows.name})" if isinstance(rows, Opaque) else rows.count
    return small(site.emit.temp(f"np.int64({count})"), "int64")


@rule(GetItem)
def item(site: Site, rows: Rows | Opaque, i: Any) -> Any:
    emit = site.emit
    if not isinstance(i, Value):
        part = as_argument(emit, i, site.node.inputs[1])
        return Opaque(emit.temp(f"{as_list(emit, rows).name}[{part}]", "list"), fresh=True)
    if isinstance(rows, Opaque):
        k = emit.temp(f"index({emit.scalar(i)}, len({rows.name}))", "k")
        return _row(site, f"{rows.name}[{k}]")
    k = emit.temp(f"index({emit.scalar(i)}, {rows.count})", "k")
    shape = tuple(
        emit.temp(f"{rows.name}.shape[{axis + 1}]", "n") if n is None else n
        for axis, n in enumerate(site.out.type.shape)
    )
    # The list may grow into another buffer before this is read.
    name = emit.temp(rows.name, "a")
    return Virtual(shape, rows.dtype, lambda at: emit.temp(f"{name}[{joined([k, *at])}]"))


def _row(site: Site, name: str) -> Any:
    """A row of a list, which the list keeps."""
    emit, declared = site.emit, site.out.type
    if not isinstance(declared, DenseTensorType):
        return Opaque(emit.temp(name, "held"))
    if not declared.ndim:
        return small(emit.temp(f"{name}.item()"), declared.dtype)
    array = emit.temp(name, "a")
    for k, n in enumerate(declared.shape):
        if n is not None:
            with emit.block(f"if {array}.shape[{k}] != {n}:"):
                emit.line('raise ValueError("A row of a list has another shape than declared")')
    return emit.array(array, site.out)


# -- lists of users --------------------------------------------------------------------------------


def _changeable(site: Site, rows: Opaque) -> Opaque:
    """A list that may be appended to; it has the same rows."""
    if rows.fresh and len(site.uses[site.node.inputs[0]]) == 1:
        return rows
    return Opaque(site.emit.temp(f"{rows.name}.copy()", "list"), fresh=True)


def _element(site: Site, value: Any) -> str:
    return as_element(site.emit, value, site.node.inputs[0].type.ttype)


@rule(MakeList)
def make_list(site: Site, *values: Any) -> Opaque:
    emit, element = site.emit, site.out.type.ttype
    rows = [as_element(emit, value, element) for value in values]
    return Opaque(emit.temp(f"[{', '.join(rows)}]", "list"), fresh=True)


@rule(Extend)
def extend(site: Site, rows: Rows | Opaque, more: Rows | Opaque) -> Opaque:
    made = _changeable(site, as_list(site.emit, rows))
    site.emit.line(f"{made.name}.extend({as_list(site.emit, more).name})")
    return made


@rule(Insert)
def insert(site: Site, rows: Rows | Opaque, i: Value, row: Any) -> Opaque:
    emit = site.emit
    made = _changeable(site, as_list(emit, rows))
    emit.line(f"{made.name}.insert({emit.scalar(i)}, {_element(site, row)})")
    return made
