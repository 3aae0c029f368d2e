"""Typed lists: traces of tensors in one buffer, other lists as Numba lists.

A trace whose length or row shape is unknown until the end is `Rows`: a buffer with spare rows, and the
number of rows in use. The first row decides the shape of all, which `Stack` requires anyway; a full
buffer doubles. Only loops build one. Lists of users, and lists of other values than tensors, are
`Opaque`: their rows may differ in shape. A row in a list is never written to, so that two lists may
share it; a node that takes a row out of a list copies it before a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.tensor.type import DenseTensorType
from pytensor.typed_list import Append, Extend, GetItem, Insert, Length, MakeList, Reverse

from loopax.ir import Stack, Unstack
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, as_dim, call, expr, list_of, tuple_of
from loopax.numba_backend.emit.opaque import as_argument, as_element, as_list, check_declared
from loopax.numba_backend.emit.statements import Do
from loopax.numba_backend.emit.storage import new_array
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import (
    Array,
    EmittedValue,
    Opaque,
    Rows,
    Value,
    Virtual,
    small,
)

# -- traces ----------------------------------------------------------------------------------------


def copied(emit: Emitter, rows: Rows) -> Rows:
    """Copy a trace, for appending."""
    name = emit.temp(rows.name.method("copy"), "rows")
    return Rows(name, emit.temp(rows.count, "n"), rows.ndim, rows.dtype)


@rule(Append)
def append(site: Site, rows: Rows | Opaque, row: Any) -> Rows | Opaque:
    emit = site.emit
    if isinstance(rows, Opaque):
        extended = _changeable(site, rows)
        emit.add(Do(extended.name.method("append", _item(site, row))))
        return extended
    if not site.in_place:
        rows = copied(emit, rows)
    name, count = rows.name, rows.count
    first, later = emit.branches(expr("{} == 0", count))
    with emit.inside(first):
        emit.set(name, new_array([4, *row.shape], rows.dtype))
    with emit.inside(later), emit.when(expr("{} == {}", count, name.length(0))):
        emit.set(name, call("grown", name))
    _check_rows(emit, name, row.shape, "The rows of a trace differ in shape: pad them to one")
    row = row if emit.is_small(row.shape) else emit.indexable(row)
    with emit.loops(row.shape) as indices:
        for at in indices:
            emit.set(name[count, *at], emit.read(row, at))
    emit.set(count, count + 1)
    return rows


def _check_rows(emit: Emitter, rows: Expr, shape: Sequence[Dim], message: str) -> None:
    for k, n in enumerate(shape):
        with emit.when(expr("{} != {}", rows.length(k + 1), n)):
            emit.fail("ValueError", message)


READS_ONCE[Append] = lambda node, position: True


@rule(Stack)
def stack(site: Site, rows: Rows | Opaque, *dims: Value) -> Array:
    emit = site.emit
    shape: list[Dim] = [as_dim(emit.scalar(n)) for n in dims]
    message = "A row of a list does not have the expected shape"
    if isinstance(rows, Opaque):
        return _stacked(site, rows, shape, message)
    name = emit.temp(rows.name[expr(":{}", rows.count)], "a")
    with emit.when(expr("{} == 0", rows.count)):
        emit.set(name, new_array([0, *shape], rows.dtype))
    _check_rows(emit, name, shape, message)
    return Array(name, (emit.temp(rows.count, "n"), *shape), rows.dtype)


def _stacked(site: Site, rows: Opaque, shape: list[Dim], message: str) -> Array:
    emit, dtype = site.emit, site.out.type.dtype
    n = emit.temp(call("len", rows.name), "n")
    name = emit.temp(new_array([n, *shape], dtype), "a")
    with emit.repeated(i := emit.local("i"), n):
        row = rows.name[i]
        if shape:
            with emit.when(expr("{}.shape != {}", row, tuple_of(shape))):
                emit.fail("ValueError", message)
        emit.set(name[i], row if shape else row.method("item"))
    return Array(name, (n, *shape), dtype)


@rule(Unstack)
def unstack(site: Site, x: Value) -> Rows:
    emit = site.emit
    n = emit.temp(x.shape[0], "n")
    rows = emit.temp(emit.dense(x).name.method("copy"), "rows")
    return Rows(rows, n, len(x.shape) - 1, x.dtype)


# -- both ------------------------------------------------------------------------------------------


@rule(Reverse)
def reverse(site: Site, rows: Rows | Opaque) -> Rows | Opaque:
    emit = site.emit
    if isinstance(rows, Opaque):
        reversed_list = _changeable(site, rows)
        emit.add(Do(reversed_list.name.method("reverse")))
        return reversed_list
    name = emit.temp(expr("{}[:{}][::-1].copy()", rows.name, rows.count), "rows")
    return Rows(name, emit.temp(rows.count, "n"), rows.ndim, rows.dtype)


@rule(Length)
def list_length(site: Site, rows: Rows | Opaque) -> Value:
    count = call("len", rows.name) if isinstance(rows, Opaque) else rows.count
    return small(site.emit.temp(count.astype("int64")), "int64")


@rule(GetItem)
def item(site: Site, rows: Rows | Opaque, i: Value | Opaque | slice) -> Any:
    emit = site.emit
    if not isinstance(i, Value):
        part = as_argument(emit, i, site.node.inputs[1])
        return Opaque(emit.temp(as_list(emit, rows).name[part], "list"), fresh=True)
    if isinstance(rows, Opaque):
        k = emit.temp(call("index", emit.scalar(i), call("len", rows.name)), "k")
        return _row(site, rows.name[k])
    k = emit.temp(call("index", emit.scalar(i), rows.count), "k")
    shape = tuple(
        emit.temp(rows.name.length(axis + 1), "n") if n is None else n
        for axis, n in enumerate(site.out.type.shape)
    )
    # The list may move to another buffer before the element is read.
    name = emit.temp(rows.name, "a")
    return Virtual(shape, rows.dtype, lambda at: emit.temp(name[k, *at]))


def _row(site: Site, row: Expr) -> Any:
    """A row of a list, shared with the list."""
    emit, declared = site.emit, site.out.type
    if not isinstance(declared, DenseTensorType):
        return Opaque(emit.temp(row, "held"))
    if not declared.ndim:
        return small(emit.temp(row.method("item")), declared.dtype)
    array = emit.temp(row, "a")
    check_declared(emit, array, site.out, "A row of a list has another shape than declared")
    return emit.array(array, site.out)


# -- lists of users --------------------------------------------------------------------------------


def _changeable(site: Site, rows: Opaque) -> Opaque:
    """Copy a list for appending, unless it is unshared; the rows are shared."""
    if rows.fresh and len(site.uses[site.node.inputs[0]]) == 1:
        return rows
    return Opaque(site.emit.temp(rows.name.method("copy"), "list"), fresh=True)


def _item(site: Site, value: EmittedValue) -> Expr:
    return as_element(site.emit, value, site.node.inputs[0].type.ttype)


@rule(MakeList)
def make_list(site: Site, *values: EmittedValue) -> Opaque:
    rows = [as_element(site.emit, value, site.out.type.ttype) for value in values]
    return Opaque(site.emit.temp(list_of(rows), "list"), fresh=True)


@rule(Extend)
def extend(site: Site, rows: Rows | Opaque, extension: Rows | Opaque) -> Opaque:
    extended = _changeable(site, as_list(site.emit, rows))
    site.emit.add(Do(extended.name.method("extend", as_list(site.emit, extension).name)))
    return extended


@rule(Insert)
def insert(site: Site, rows: Rows | Opaque, i: Value, row: EmittedValue) -> Opaque:
    emit = site.emit
    extended = _changeable(site, as_list(emit, rows))
    emit.add(Do(extended.name.method("insert", emit.scalar(i), _item(site, row))))
    return extended
