"""Algorithms on the entries of a sparse matrix: find, merge, drop, densify.

Only `todense` and `from_dense` involve a dense array. If the indices are known while JAX traces, so is all
that follows from them, and results have no padding. Padding has indices outside of the matrix: a gather
reads it as 0 and a scatter drops it, in derivatives too. With ``regular`` an op includes the elements that
happen to be 0: see `loopax.jax_backend.values.sparse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from loopax.jax_backend.values.sparse import OrderedBCOO, hiding, known, ordered, with_data
from loopax.numerics.arrays import Array


def todense(x: OrderedBCOO, *, regular: bool = False) -> jax.Array:
    """The dense matrix; duplicates are added."""
    places = x.places if regular else (x.row, x.col)
    return jnp.zeros(x.shape, x.data.dtype).at[places].add(x.data, mode="drop")


def gather(dense: Array, *indices: Array) -> jax.Array:
    """Read ``dense[indices]``, with 0 for padding."""
    return jnp.asarray(dense).at[indices].get(mode="fill", fill_value=0)


def factor(dense: Array, x: OrderedBCOO, *indices: Array) -> jax.Array:
    """Read ``dense[indices]`` as factors for the entries of ``x``: hidden entries stay 0."""
    entries = gather(dense, *indices)
    if x.exact:
        return entries
    hidden = x.hidden.reshape(-1, *[1] * (entries.ndim - 1))
    return jnp.where(hidden & ~jnp.isfinite(entries), jnp.zeros((), entries.dtype), entries)


def from_dense(dense: Array, format: str) -> OrderedBCOO:
    """The nonzero elements of ``dense``, with room for all elements."""
    return nonzeros(all_of(dense, format))


def all_of(dense: Array, format: str) -> OrderedBCOO:
    """A matrix with all elements of ``dense`` as entries."""
    dense = jnp.asarray(dense)
    rows, cols = np.indices(dense.shape)
    if format == "csc":
        rows, cols = rows.T, cols.T
    row, col = rows.reshape(-1), cols.reshape(-1)
    return ordered(dense[row, col], row, col, dense.shape, format, exact=True, unique=True)


def select(x: OrderedBCOO, keep: Array | bool) -> OrderedBCOO:
    """The entries of ``x`` where ``keep`` is true, in order; the others are dropped."""
    if known(keep, x.indices):
        where = np.flatnonzero(np.asarray(keep))
        data, row, col = x.data[where], x.row[where], x.col[where]
        exact = x.exact
    else:
        m, n = x.shape
        row, col = jnp.where(keep, x.row, m), jnp.where(keep, x.col, n)
        data, row, col = _padding_last(jnp.where(keep, x.data, 0), row, col, row >= m)
        exact = False
    return ordered(data, row, col, x.shape, x.format, exact=exact, unique=x.unique_indices)


def nonzeros(x: OrderedBCOO) -> OrderedBCOO:
    """Hide the explicit zeros of ``x``; JAX differentiates the result as ``x`` itself."""
    row, col = hiding(x, x.data == 0)
    data, row, col = _padding_last(x.data, row, col, row >= x.shape[0])
    return ordered(data, row, col, x.shape, x.format, exact=False, unique=x.unique_indices)


def _padding_last(data: Array, row: Array, col: Array, padding: Array) -> Any:
    order = jnp.argsort(padding, stable=True)
    return jnp.asarray(data)[order], jnp.asarray(row)[order], jnp.asarray(col)[order]


def groups(parts: Sequence[tuple[Any, Any]]) -> tuple[list[Any], int]:
    """Number the distinct indices in several lists together: equal indices have equal numbers.

    ``parts`` has pairs (major, minor). Groups are numbered in order, major first; the returned number
    bounds their count.
    """
    major = [p[0] for p in parts]
    minor = [p[1] for p in parts]
    cuts = np.cumsum([len(p) for p in major])[:-1]
    if known(*major, *minor):
        pairs = np.stack([np.concatenate(major), np.concatenate(minor)])
        unique, inverse = np.unique(pairs, axis=1, return_inverse=True)
        return np.split(inverse.reshape(-1), cuts), unique.shape[1]
    first, second = jnp.concatenate(major), jnp.concatenate(minor)
    order = jnp.lexsort((second, first))
    first, second = first[order], second[order]
    new = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    number = jnp.concatenate([jnp.zeros(min(len(first), 1), int), jnp.cumsum(new)])
    group = jnp.zeros(len(first), int).at[order].set(number)
    return jnp.split(group, cuts), len(first)


def joined(xs: Sequence[OrderedBCOO], format: str) -> tuple[list[Any], OrderedBCOO]:
    """The values of each of ``xs`` at the union of their indices, and that union.

    Values of duplicates are added, and are 0 where a matrix has no entry. The returned matrix carries the
    indices; its own values mean nothing, and entries that none of ``xs`` stores are hidden.
    """
    shape = xs[0].shape
    places = [x.places for x in xs]
    numbers, n = groups([(c, r) if format == "csc" else (r, c) for r, c in places])
    values = [
        jnp.zeros(n, x.data.dtype).at[g].add(x.data) for x, g in zip(xs, numbers, strict=True)
    ]
    exact = known(*numbers) and all(x.exact for x in xs)
    xp: Any = np if exact else jnp
    number = xp.concatenate(numbers)
    row, col = (xp.concatenate([p[axis] for p in places]) for axis in (0, 1))
    if exact:
        all_rows, all_cols = np.empty(n, np.int32), np.empty(n, np.int32)
        all_rows[number], all_cols[number] = row, col
        return values, ordered(
            values[0], all_rows, all_cols, shape, format, exact=True, unique=True
        )
    rows, cols = (
        jnp.full(n, size).at[number].set(i) for size, i in zip(shape, (row, col), strict=True)
    )
    where = ordered(values[0], rows, cols, shape, format, exact=False, unique=True)
    stored = jnp.concatenate([jnp.asarray(x.row) < shape[0] for x in xs])
    hidden = ~jnp.zeros(n, bool).at[number].max(stored)
    return values, ordered(
        values[0], *hiding(where, hidden), shape, format, exact=False, unique=True
    )


def merged(x: OrderedBCOO) -> OrderedBCOO:
    """Sort ``x``, and add its duplicates up in one entry each."""
    if x.unique_indices:
        return x
    (data,), where = joined([x], x.format)
    if where.exact:
        return with_data(where, data)
    data, row, col = _padding_last(data, where.row, where.col, where.row >= x.shape[0])
    return ordered(data, row, col, x.shape, x.format, exact=False, unique=True)


def lookup(x: OrderedBCOO, row: Array, col: Array) -> jax.Array:
    """Read ``x[row, col]`` element by element; 0 if there is no entry."""
    row, col = (np.asarray(i) if known(i) else i for i in (row, col))
    if not len(row):
        return jnp.zeros(0, x.data.dtype)
    (ours, asked), n = groups([x.places, (row, col)])
    return jnp.zeros(n, x.data.dtype).at[ours].add(x.data)[asked]


def product(x: OrderedBCOO, dense: Array, dtype: DTypeLike, *, regular: bool = False) -> jax.Array:
    """Compute ``x @ dense``, with one or two dimensions, in ``dtype``."""
    row, col = x.places if regular else (x.row, x.col)
    rows = factor(jnp.asarray(dense, dtype), x, col)
    data = jnp.asarray(x.data, dtype).reshape(-1, *[1] * (rows.ndim - 1))
    out = jnp.zeros((x.shape[0], *rows.shape[1:]), dtype)
    return out.at[row].add(data * rows, mode="drop")
