"""Typed lists: creation, reads, changes, stacking. Their form in JAX: `loopax.jax_backend.values.lists`.

The length of a list is static. So `Remove`, which shortens the list if it finds the row, must know the
values; all other ops trace whatever rows are traced.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Choose
from pytensor.tensor.type_other import MakeSlice
from pytensor.typed_list.basic import (
    Append,
    Count,
    Extend,
    GetItem,
    Index,
    Insert,
    Length,
    MakeList,
    Remove,
    Reverse,
)

from loopax.base.errors import describe
from loopax.ir import Stack, Unstack
from loopax.jax_backend.ops.indexing.index import from_front, keep_outside
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.lists import StackedList, TypedList, as_list, as_row, from_rows
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import no_number, or_no_number


def _list(site: Site, x: TypedList | list[Any], k: int = 0) -> TypedList:
    """The list in input ``k``; a constant one is a Python list."""
    return as_list(x, site.node.inputs[k].type)


@rule(MakeList)
def make_list(site: Site, *rows: object) -> Any:
    return from_rows(rows, site.out.type.ttype)


@rule(MakeSlice)
def make_slice(site: Site, *bounds: object) -> Any:
    return slice(*bounds)


@rule(GetItem)
def get_item(site: Site, x: TypedList | list[Any], index: Array | slice) -> Any:
    x = _list(site, x)
    if isinstance(index, slice):
        return _part(site, x, slice(*_static_bounds(site, index)))
    if is_traced(index) and isinstance(x, StackedList) and len(x):
        return jax.tree.map(lambda leaf: _at(jnp.asarray(leaf), index), x.data)
    k = int(site.static(1))
    if not -len(x) <= k < len(x):
        raise IndexError(
            f"Index {k} is out of range for a list of {len(x)} rows, {describe(site.node.inputs[0])}."
        )
    return x[k]


def _part(site: Site, x: TypedList, rows: slice) -> TypedList:
    """A slice of a list; rows of a ragged list may turn out to have equal shapes, or be none."""
    return x[rows] if isinstance(x, StackedList) else from_rows(x[rows], site.out.type.ttype)


def _static_bounds(site: Site, index: slice) -> list[Any]:
    bounds = [index.start, index.stop, index.step]
    slice_var = site.node.inputs[1]
    if (
        not isinstance(slice_var, Constant)
        and slice_var.owner is not None
        and any(map(is_traced, bounds))
    ):
        bounds = [site.frame.static_value(v, site.node) for v in slice_var.owner.inputs]
    return [None if b is None else int(b) for b in bounds]


def _at(leaf: jax.Array, k: Array) -> jax.Array:
    """Row ``k``, traced, of an array; `no_number` if out of range. For random keys, the last one."""
    k = keep_outside(k, leaf.shape[0])
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf.at[k].get(mode="clip")
    return leaf.at[k].get(mode="fill", fill_value=no_number(leaf.dtype))


@rule(Choose)
def choose(site: Site, index: Array, choices: Array | TypedList | list[Any]) -> jax.Array:
    """Choose for each element one of the rows of a list or an array, by an index."""
    rows = list(_list(site, choices, 1)) if isinstance(choices, StackedList | list) else choices
    if site.op.mode != "raise":
        return jnp.choose(index, rows, mode=site.op.mode)
    inside = (index >= 0) & (index < len(rows))
    if not is_traced(index) and not np.all(inside):
        raise ValueError(
            f"{describe(site.out)}: an index lies outside of the {len(rows)} choices. "
            "pt.choose(..., mode='clip') takes the nearest one."
        )
    chosen = jnp.choose(index, rows, mode="clip")
    return or_no_number(inside, chosen)


@rule(Length)
def length(site: Site, x: TypedList | list[Any]) -> np.ndarray:
    return np.asarray(len(x), dtype=np.int64)


@rule(Append)
def append(site: Site, x: TypedList | list[Any], row: object) -> Any:
    return from_rows([*_list(site, x), row], site.out.type.ttype)


@rule(Extend)
def extend(site: Site, x: TypedList | list[Any], more: TypedList | list[Any]) -> Any:
    return from_rows([*_list(site, x), *_list(site, more, 1)], site.out.type.ttype)


@rule(Insert)
def insert(site: Site, x: TypedList | list[Any], index: Array, row: object) -> Any:
    x = _list(site, x)
    longer = from_rows([*x, row], site.out.type.ttype)
    if not is_traced(index) or not isinstance(longer, StackedList):
        rows = list(x)
        rows.insert(int(site.static(1)), row)
        return from_rows(rows, site.out.type.ttype)
    n = len(x)
    at = jnp.clip(from_front(index, n), 0, n)
    k = jnp.arange(n + 1)
    order = jnp.where(k < at, k, jnp.where(k == at, n, k - 1))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[order], longer)


@rule(Reverse)
def reverse(site: Site, x: TypedList | list[Any]) -> TypedList:
    return _part(site, _list(site, x), slice(None, None, -1))


@rule(Remove)
def remove(site: Site, x: TypedList | list[Any], row: object) -> Any:
    rows = list(_list(site, site.static(0)))
    places = np.flatnonzero(_equal(site, rows, site.static(1)))
    return from_rows([r for k, r in enumerate(rows) if k not in places[:1]], site.out.type.ttype)


@rule(Count)
def count(site: Site, x: TypedList | list[Any], row: object) -> Any:
    return sum(_equal(site, list(_list(site, x)), row), np.asarray(0, dtype=np.int64))


@rule(Index)
def index(site: Site, x: TypedList | list[Any], row: object) -> Any:
    equal = _equal(site, list(_list(site, x)), row)
    if any(map(is_traced, equal)):
        flags = jnp.stack(equal)
        return jnp.where(flags.any(), jnp.argmax(flags), no_number(np.dtype("int64")))
    if not any(equal):
        raise ValueError(
            f"{describe(site.out)} is the index of a row in a list, but none of its {len(equal)} rows "
            "equals that row."
        )
    return np.asarray([bool(f) for f in equal].index(True))


def _equal(site: Site, rows: list[Any], row: object) -> list[Any]:
    """Flags for the rows equal to ``row``, by `values_eq` of their type: NaN equals NaN."""
    row = as_row(row, site.node.inputs[1])
    return [_same(r, row) for r in rows]


def _same(a: object, b: object) -> Any:
    x: tuple[list[Any], Any] = jax.tree.flatten(a)
    y: tuple[list[Any], Any] = jax.tree.flatten(b)
    if x[1] != y[1] or any(np.shape(p) != np.shape(q) for p, q in zip(x[0], y[0], strict=True)):
        return np.asarray(False)
    same: Any = np.asarray(True)
    for p, q in zip(x[0], y[0], strict=True):
        equal = p == q
        if jnp.issubdtype(p.dtype, jnp.inexact):
            xp = jnp if is_traced(p) or is_traced(q) else np
            equal = equal | (xp.isnan(p) & xp.isnan(q))
        same = same & equal.all()
    return same


@rule(Stack)
def stack(site: Site, x: TypedList | list[Any], *dims: Array) -> Any:
    shape = tuple(int(site.static(1 + k)) for k in range(len(dims)))
    x = _list(site, x)
    for k, row in enumerate(x[:1] if isinstance(x, StackedList) else x):
        if row.shape != shape:
            raise ValueError(
                f"Row {k} of a list has the shape {row.shape}, but all rows must have {shape}, for "
                f"{describe(site.out)}: pad the rows to one shape before you stack them."
            )
    if not len(x):
        return np.empty((0, *shape), site.out.type.dtype)
    assert isinstance(x, StackedList)
    return x.data


@rule(Unstack)
def unstack(site: Site, x: Array) -> StackedList:
    return StackedList(x)
