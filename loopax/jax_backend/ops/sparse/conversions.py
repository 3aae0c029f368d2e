"""Sparse matrices: parts, construction, and conversion to other forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.sparse.basic import (
    Cast,
    ColScaleCSC,
    ConstructSparseFromList,
    DenseFromSparse,
    Diag,
    EnsureSortedIndices,
    HStack,
    Remove0,
    RowScaleCSC,
    SparseFromDense,
    Transpose,
    VStack,
)
from pytensor.sparse.linalg import SparseBlockDiagonal
from pytensor.sparse.math import SpSum

from loopax.ir.derivatives.rules.sparse_conversions import is_of_dense
from loopax.jax_backend.ops.sparse.csm import from_parts
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import OrderedBCOO, arrange, known, transposed, with_data
from loopax.jax_backend.values.sparse_entries import (
    all_of,
    factor,
    from_dense,
    merged,
    nonzeros,
    todense,
)
from loopax.numerics.arrays import Array


@rule(DenseFromSparse)
def dense_from_sparse(site: Site, x: OrderedBCOO) -> Array:
    """The dense matrix; if it was dense before, elements that happen to be 0 have derivatives."""
    return todense(x, regular=not site.op.sparse_grad or is_of_dense(site.node.inputs[0]))


@rule(SparseFromDense)
def sparse_from_dense(site: Site, x: Array) -> OrderedBCOO:
    """A sparse matrix with an entry for each element of ``x``; zeros become padding."""
    return from_dense(x, site.op.format)


@rule(Transpose)
def transpose(site: Site, x: OrderedBCOO) -> OrderedBCOO:
    return transposed(x)


@rule(Cast)
def cast(site: Site, x: OrderedBCOO) -> OrderedBCOO:
    return with_data(x, jnp.asarray(x.data).astype(site.out.type.dtype))


@rule(Remove0)
def remove_zeros(site: Site, x: OrderedBCOO) -> OrderedBCOO:
    return nonzeros(x)


@rule(EnsureSortedIndices)
def sort_indices(site: Site, x: OrderedBCOO) -> OrderedBCOO:
    return (
        x if x.unique_indices else arrange(x.data, x.row, x.col, x.shape, x.format, exact=x.exact)
    )


@rule(ColScaleCSC)
def scale_columns(site: Site, x: OrderedBCOO, s: Array) -> OrderedBCOO:
    _check_length(site, s, x.shape[1])
    return with_data(x, x.data * factor(s, x, x.places[1]))


@rule(RowScaleCSC)
def scale_rows(site: Site, x: OrderedBCOO, s: Array) -> OrderedBCOO:
    _check_length(site, s, x.shape[0])
    return with_data(x, x.data * factor(s, x, x.places[0]))


def _check_length(site: Site, s: Array, length: int) -> None:
    if s.shape != (length,):
        raise ValueError(
            f"{site.op} needs a vector of length {length}, got one of shape {s.shape}."
        )


@rule(Diag)
def diagonal(site: Site, x: OrderedBCOO) -> Array:
    m, n = x.shape
    if m != n:
        raise ValueError(f"Diag takes a square matrix, got one of shape {x.shape}.")
    row, col = x.places
    place = jnp.where(row == col, row, n)
    return jnp.zeros(n, x.data.dtype).at[place].add(x.data, mode="drop")


@rule(SpSum)
def sparse_sum(site: Site, x: OrderedBCOO) -> Array:
    places = (x.row, x.col) if site.op.structured else x.places
    if site.op.axis is None:  # hidden entries are 0, and have a derivative
        return jnp.sum(jnp.where(places[0] < x.shape[0], x.data, jnp.zeros_like(x.data)))
    axis = 1 - site.op.axis
    index = places[axis]
    return jnp.zeros(x.shape[axis], x.data.dtype).at[index].add(x.data, mode="drop")


@rule(HStack, VStack)
def stack(site: Site, *blocks: OrderedBCOO) -> OrderedBCOO:
    axis = 1 if isinstance(site.op, HStack) else 0
    other = {b.shape[1 - axis] for b in blocks}
    if len(other) > 1:
        raise ValueError(f"{site.op} of matrices of the shapes {[b.shape for b in blocks]}.")
    ends = np.cumsum([b.shape[axis] for b in blocks])
    starts = [int(e) - b.shape[axis] for b, e in zip(blocks, ends, strict=True)]
    offsets = [(0, k) if axis else (k, 0) for k in starts]
    total, (same,) = int(ends[-1]), other
    return _placed(site, blocks, offsets, (same, total) if axis else (total, same))


@rule(SparseBlockDiagonal)
def block_diagonal(site: Site, *blocks: Array | OrderedBCOO) -> OrderedBCOO:
    """The block-diagonal matrix; all elements of a dense block are stored, as in SciPy."""
    form = site.op.format
    matrices = [b if isinstance(b, OrderedBCOO) else all_of(b, form) for b in blocks]
    ends = np.cumsum([b.shape for b in matrices], axis=0)
    offsets = [tuple(e - b.shape) for b, e in zip(matrices, ends, strict=True)]
    return _placed(site, matrices, offsets, ends[-1])


def _placed(
    site: Site,
    blocks: Sequence[OrderedBCOO],
    offsets: Sequence[tuple[int | np.integer, int | np.integer]],
    shape: Sequence[int] | np.ndarray,
) -> OrderedBCOO:
    """One matrix of blocks, each moved by its offset. SciPy merges duplicates in the conversion."""
    form, dtype = site.out.type.format, site.out.type.dtype
    if any(b.format != form for b in blocks):
        blocks = [merged(b) for b in blocks]
    exact = all(b.exact for b in blocks)
    xp: Any = np if exact and known(*[b.indices for b in blocks]) else jnp
    rows, cols = [], []
    for b, (down, right) in zip(blocks, offsets, strict=True):
        row, col = b.places
        out = xp.where(b.hidden, np.asarray(shape)[:, None] + 1, 0)  # hidden there, hidden here
        inside = row < b.shape[0]
        rows.append(xp.where(inside, row + down + out[0], shape[0]))
        cols.append(xp.where(inside, col + right + out[1], shape[1]))
    data = jnp.concatenate([jnp.asarray(b.data, dtype) for b in blocks])
    return arrange(data, xp.concatenate(rows), xp.concatenate(cols), shape, form, exact=exact)


@rule(ConstructSparseFromList)
def construct_from_list(site: Site, shape: Array, values: Array, where: Array) -> OrderedBCOO:
    """Put row ``k`` of ``values`` into row ``where[k]``, in CSC format."""
    rows, cols = values.shape
    minor = (np if known(where) else jnp).tile(where, cols)
    return from_parts(
        "csc",
        jnp.asarray(values).T.reshape(-1),
        minor,
        np.arange(cols + 1) * rows,
        np.asarray(site.static(0)),
        exact=True,
        unique=False,
    )
