"""Rows, slices and elements of sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.sparse.basic import (
    GetItem2d,
    GetItem2Lists,
    GetItem2ListsGrad,
    GetItemList,
    GetItemListGrad,
    GetItemScalar,
)

from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import OrderedBCOO, arrange, known, ordered
from loopax.jax_backend.values.sparse_entries import groups, lookup, select
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import no_number


@rule(GetItem2d)
def slices(site: Site, x: OrderedBCOO, *bounds: Array | None) -> OrderedBCOO:
    """Read ``x[a:b:c, d:e:f]``, with bounds that must be known while JAX traces."""
    ends = [site.static(k) for k in range(1, 7)]
    ends = [None if b is None else int(b) for b in ends]
    parts = [slice(*ends[:3]).indices(x.shape[0]), slice(*ends[3:]).indices(x.shape[1])]
    places, inside, shape = [], True, []
    for index, (start, stop, step) in zip(x.places, parts, strict=True):
        length = len(range(start, stop, step))
        place = (index - start) // step
        inside = inside & ((index - start) % step == 0) & (place >= 0) & (place < length)
        places.append(place)
        shape.append(length)
    row, col = places
    return _moved(x, x.data, row, col, inside, x.hidden, shape)


def _moved(
    x: OrderedBCOO,
    data: Array,
    row: Array,
    col: Array,
    keep: Array | bool,
    hidden: Array,
    shape: Sequence[int],
) -> OrderedBCOO:
    """A matrix in the format of ``x`` with entries at new places, where ``keep``."""
    if not x.exact:
        row = jnp.where(hidden, row + shape[0] + 1, row)
        col = jnp.where(hidden, col + shape[1] + 1, col)
    # Entries that are not kept may have arbitrary indices: remove them before any use.
    entries = select(ordered(data, row, col, shape, x.format, exact=x.exact), keep)
    return arrange(entries.data, entries.row, entries.col, shape, x.format, exact=entries.exact)


@rule(GetItemList)
def rows(site: Site, x: OrderedBCOO, index: Array) -> OrderedBCOO:
    """Read row ``index[k]`` as row ``k``.

    If ``index`` is traced, any row may be taken any number of times: each row of the result has room for
    all entries. A row that does not exist is NaN wherever the matrix has entries.
    """
    m, n = x.shape
    index, bad = _legal(index, m)
    count = len(index)
    x_row, x_col = x.places
    if known(index):
        times = int(np.bincount(index, minlength=1).max()) if count else 0
        place = np.full((times, m + 1), count)  # the position of the t-th copy of each row
        seen = np.zeros(m + 1, int)
        for k, r in enumerate(index):
            place[seen[r], r] = k
            seen[r] += 1
        row = (place if known(x_row) else jnp.asarray(place))[:, x_row]
    else:
        there = (x_row == index[:, None]) | (bad[:, None] & (x_row < m))
        row = jnp.where(there, np.arange(count)[:, None], count)
    times = row.shape[0]
    data = jnp.tile(x.data, times)
    if not known(index):
        spoiled = (bad[:, None] & (x.row < m)).reshape(-1)
        data = jnp.where(spoiled, no_number(data.dtype), data)
    xp: Any = np if known(x_col) else jnp
    row = row.reshape(-1)
    hidden = xp.tile(x.hidden, times)
    return _moved(x, data, row, xp.tile(x_col, times), row < count, hidden, (count, n))


@rule(GetItemListGrad)
def rows_grad(site: Site, x: OrderedBCOO, index: Array, g: OrderedBCOO) -> OrderedBCOO:
    """Put row ``k`` of ``g`` into row ``index[k]``; the last one wins, as in PyTensor."""
    m, n = x.shape
    index, _ = _legal(index, m)
    xp: Any = np if known(index, g.indices) else jnp
    place = xp.where(_last(index, index), index, m)
    g_row, g_col = g.places
    row = xp.concatenate([place, xp.full(1, m)])[g_row]  # padding has the row after the last
    return _moved(g, g.data, row, g_col, row < m, g.hidden, (m, n))


@rule(GetItem2Lists)
def elements(site: Site, x: OrderedBCOO, row: Array, col: Array) -> Array:
    row, no_row = _legal(row, x.shape[0])
    col, no_col = _legal(col, x.shape[1])
    read = lookup(x, row, col)
    return jnp.where(no_row | no_col, no_number(read.dtype), read)


@rule(GetItem2ListsGrad)
def elements_grad(site: Site, x: OrderedBCOO, row: Array, col: Array, g: Array) -> OrderedBCOO:
    """Put ``g[k]`` at ``row[k], col[k]``; the last one wins, as in PyTensor."""
    row, no_row = _legal(row, x.shape[0])
    col, no_col = _legal(col, x.shape[1])
    keep = _last(row, col) & ~(no_row | no_col)
    entries = select(ordered(jnp.asarray(g), row, col, x.shape, x.format, exact=True), keep)
    return arrange(entries.data, entries.row, entries.col, x.shape, x.format, exact=entries.exact)


@rule(GetItemScalar)
def element(site: Site, x: OrderedBCOO, row: Array, col: Array) -> Array:
    return elements(site, x, jnp.reshape(row, 1), jnp.reshape(col, 1))[0]


def _legal(index: Array, length: int) -> tuple[Any, Any]:
    """Count ``index`` from the start; also return a mask of indices out of range.

    Raises `IndexError` if one is out of range, and that is known while JAX traces.
    """
    if known(index):
        index = np.asarray(index).astype(np.int64)
    else:
        index = index.astype(int)  # unsigned ones have no negatives to compare with
    bad = (index < -length) | (index >= length)
    if known(index) and bad.any():
        raise IndexError(
            f"Index {index[bad][0]} is out of range for an axis of length {length} of a sparse matrix."
        )
    return (index + length * (index < 0)), bad


def _last(row: Array, col: Array) -> Array:
    """A mask of the elements that no later element with the same indices overwrites."""
    (group,), n = groups([(row, col)])
    order = np.arange(len(row))
    if known(group):
        latest = np.zeros(n, int)
        np.maximum.at(latest, group, order)
        return latest[group] == order
    return jnp.zeros(n, int).at[group].max(order)[group] == order
