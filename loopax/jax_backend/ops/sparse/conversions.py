"""Sparse matrices taken apart, built, and brought into another form."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.sparse.basic import (
    CSM,
    Cast,
    ColScaleCSC,
    ConstructSparseFromList,
    CSMGrad,
    CSMProperties,
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
from pytensor.sparse.rewriting import CSMGradC

from loopax.base.errors import DynamicShapeError, describe
from loopax.jax_backend.ops.sparse.readers import reads_entries
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import (
    OrderedBCOO,
    arrange,
    known,
    ordered,
    transposed,
    with_data,
)
from loopax.jax_backend.values.sparse_entries import (
    all_of,
    factor,
    from_dense,
    lookup,
    merged,
    nonzeros,
    todense,
)

# What stands in for the value of an entry that is padding: in the domain of every function that
# PyTensor applies to entries, with a finite derivative there. It is left out again afterwards.
_HARMLESS = 0.5


@rule(CSMProperties)
def csm_properties(site: Site, x: OrderedBCOO) -> tuple[Any, ...]:
    """SciPy's arrays; of a matrix with padding, arrays that have it at the end too.

    Raises `DynamicShapeError` if there is padding, and the program reads the entries other than one
    by one.
    """
    m, n = x.shape
    length = n if x.format == "csc" else m
    data, minor = x.data, x.minor
    if not x.exact and (site.used[0] or site.used[1]):
        _check_readers(site)
        one = jnp.asarray(_HARMLESS if x.data.dtype.kind in "fc" else 1, x.data.dtype)
        data = jnp.where(x.major < length, data, one)
    xp: Any = np if known(x.indices) else jnp
    pointers = xp.searchsorted(x.major, np.arange(length + 1)).astype(np.int32)
    return data, minor, pointers, np.asarray(x.shape, dtype=np.int32)


def _check_readers(site: Site) -> None:
    reader = reads_entries(site)
    if reader is not None:
        v = site.node.inputs[0]
        raise DynamicShapeError(
            f"{reader} needs the entries of {describe(v)}, whose number is known only when the program "
            "runs: JAX must know the length of an array while it traces. Make the matrix "
            "an input of the program, a = pytensor.sparse.csr_matrix('a'), and call it with "
            "scipy.sparse.csr_matrix(x), outside of jax.jit; or use an op that does not depend on the "
            "number of entries, such as pytensor.sparse.dense_from_sparse(a)."
        )


def major_of(pointers: Any, n_entries: int) -> Any:
    """The row of each entry of a CSR matrix, from its ``indptr``; its length for what is beyond."""
    if known(pointers):
        return np.searchsorted(np.asarray(pointers), np.arange(n_entries), "right") - 1
    return jnp.searchsorted(pointers, jnp.arange(n_entries), "right") - 1


def from_parts(
    format: str, data: Any, minor: Any, pointers: Any, shape: Any, *, exact: bool, unique: bool
) -> OrderedBCOO:
    """The matrix of SciPy's arrays, of which what lies beyond ``indptr[-1]`` is padding."""
    m, n = (int(k) for k in shape)
    length, width = (n, m) if format == "csc" else (m, n)
    if data.shape != minor.shape or pointers.shape != (length + 1,):
        raise ValueError(
            f"A sparse {format} matrix of shape ({m}, {n}) has `data` and `indices` of one length and "
            f"`indptr` of length {length + 1}, but theirs are {len(data)}, {len(minor)} and "
            f"{len(pointers)}."
        )
    count = len(data)
    if known(pointers):
        count = int(np.asarray(pointers)[-1])
        if count > len(data):
            raise ValueError(
                f"`indptr` of a sparse matrix ends with {count}, and there are {len(data)} entries."
            )
        exact = True
        data, minor = data[:count], minor[:count]
    major = major_of(pointers, len(data))
    if known(minor):
        _check_range(np.asarray(minor), width)
    if not exact:
        inside = jnp.asarray(major) < length
        minor, data = jnp.where(inside, minor, width), jnp.where(inside, data, 0)
    row, col = (minor, major) if format == "csc" else (major, minor)
    return ordered(data, row, col, (m, n), format, exact=exact, unique=unique)


def _check_range(minor: np.ndarray, width: int) -> None:
    if minor.size and (minor.min() < 0 or minor.max() >= width):
        raise ValueError(
            f"The `indices` of a sparse matrix go from {minor.min()} to {minor.max()}, on an axis of "
            f"length {width}."
        )


@rule(CSM)
def csm(site: Site, data: Any, indices: Any, pointers: Any, shape: Any) -> OrderedBCOO:
    """From SciPy's arrays. The shape must be known while JAX traces.

    Whether traced ``indptr`` use all of ``data`` is known where they are those of another matrix.
    """
    exact = unique = False
    source = _source(site.node)
    if source is not None:
        x = site.frame.read(source)
        if x.format == site.op.format and data.shape == (x.nse,):
            exact, unique = x.exact, x.unique_indices
    return from_parts(
        site.op.format,
        data,
        indices,
        pointers,
        np.asarray(site.static(3)),
        exact=exact,
        unique=unique,
    )


def _source(node: Apply) -> Variable | None:
    """The matrix whose ``indices`` and ``indptr`` a CSM takes."""
    nodes = [v.owner for v in node.inputs[1:3]]
    if any(a is None or not isinstance(a.op, CSMProperties) for a in nodes):
        return None
    same = nodes[0].inputs[0] is nodes[1].inputs[0]
    indices, pointers = (a.outputs.index(v) for a, v in zip(nodes, node.inputs[1:3], strict=True))
    return nodes[0].inputs[0] if same and (indices, pointers) == (1, 2) else None


@rule(CSMGrad, CSMGradC)
def csm_grad(site: Site, data: Any, minor: Any, pointers: Any, shape: Any, *gradient: Any) -> Any:
    """The gradient's value at each entry, duplicates in it added up; 0 where it has no entry."""
    m, n = (int(k) for k in np.asarray(site.static(3)))
    length = len(pointers) - 1
    width = n if length == m else m
    g_data, g_minor, g_pointers = gradient[:3]
    g_major = major_of(g_pointers, len(g_data))
    # Rows and columns stand for the major and minor axis here, whichever those are.
    g = ordered(g_data, g_major, g_minor, (length, width), "csr", exact=False)
    return lookup(g, major_of(pointers, len(data)), minor)


@rule(DenseFromSparse)
def dense_from_sparse(site: Site, x: OrderedBCOO) -> Any:
    return todense(x, regular=not site.op.sparse_grad)


@rule(SparseFromDense)
def sparse_from_dense(site: Site, x: Any) -> OrderedBCOO:
    """A sparse matrix with as many entries as ``x`` has elements: where it is 0 there is padding."""
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
def scale_columns(site: Site, x: OrderedBCOO, s: Any) -> OrderedBCOO:
    _check_length(site, s, x.shape[1])
    return with_data(x, x.data * factor(s, x, x.places[1]))


@rule(RowScaleCSC)
def scale_rows(site: Site, x: OrderedBCOO, s: Any) -> OrderedBCOO:
    _check_length(site, s, x.shape[0])
    return with_data(x, x.data * factor(s, x, x.places[0]))


def _check_length(site: Site, s: Any, length: int) -> None:
    if s.shape != (length,):
        raise ValueError(
            f"{site.op} needs a vector of length {length}, got one of shape {s.shape}."
        )


@rule(Diag)
def diagonal(site: Site, x: OrderedBCOO) -> Any:
    m, n = x.shape
    if m != n:
        raise ValueError(f"Diag takes a square matrix, got one of shape {x.shape}.")
    row, col = x.places
    place = jnp.where(row == col, row, n)
    return jnp.zeros(n, x.data.dtype).at[place].add(x.data, mode="drop")


@rule(SpSum)
def sparse_sum(site: Site, x: OrderedBCOO) -> Any:
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
def block_diagonal(site: Site, *blocks: Any) -> OrderedBCOO:
    """The block-diagonal matrix; all elements of a dense block are stored, as in SciPy."""
    form = site.op.format
    matrices = [b if isinstance(b, OrderedBCOO) else all_of(b, form) for b in blocks]
    ends = np.cumsum([b.shape for b in matrices], axis=0)
    offsets = [tuple(e - b.shape) for b, e in zip(matrices, ends, strict=True)]
    return _placed(site, matrices, offsets, ends[-1])


def _placed(site: Site, blocks: Any, offsets: Any, shape: Any) -> OrderedBCOO:
    """One matrix of blocks, each moved by its offset. SciPy merges duplicates where it converts."""
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
def construct_from_list(site: Site, shape: Any, values: Any, where: Any) -> OrderedBCOO:
    """Row ``k`` of ``values`` in row ``where[k]``, in CSC format."""
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
