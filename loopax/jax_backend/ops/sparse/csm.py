"""The parts of a matrix, in SciPy's form, and matrices from parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.sparse.basic import CSM, CSMGrad, CSMProperties
from pytensor.sparse.rewriting import CSMGradC

from loopax.base.errors import DynamicShapeError, describe
from loopax.jax_backend.ops.sparse.readers import reads_entries
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import OrderedBCOO, known, ordered
from loopax.jax_backend.values.sparse_entries import lookup
from loopax.numerics.arrays import Array

# The value of padding entries while a function is applied: in the domain of every function that PyTensor
# applies to entries, with a finite derivative. Afterwards padding is removed again.
_HARMLESS = 0.5


@rule(CSMProperties)
def csm_properties(site: Site, x: OrderedBCOO) -> tuple[Any, ...]:
    """SciPy's arrays of the matrix; if it has padding, the arrays have it at the end too.

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


def major_of(pointers: Array, n_entries: int) -> Array:
    """The row of each entry of a CSR matrix, from its ``indptr``; for padding, the number of rows."""
    if known(pointers):
        return np.searchsorted(np.asarray(pointers), np.arange(n_entries), "right") - 1
    return jnp.searchsorted(pointers, jnp.arange(n_entries), "right") - 1


def from_parts(
    format: str,
    data: Array,
    minor: Array,
    pointers: Array,
    shape: Sequence[int] | np.ndarray,
    *,
    exact: bool,
    unique: bool,
) -> OrderedBCOO:
    """Build a matrix from SciPy's arrays; entries beyond ``indptr[-1]`` are padding."""
    m, n = (int(k) for k in shape)
    length, width = (n, m) if format == "csc" else (m, n)
    if data.shape != minor.shape or pointers.shape != (length + 1,):
        raise ValueError(
            f"A sparse {format} matrix of shape ({m}, {n}) needs `data` and `indices` of one length "
            f"and `indptr` of length {length + 1}, but got lengths {len(data)}, {len(minor)} and "
            f"{len(pointers)}."
        )
    count = len(data)
    if known(pointers):
        count = int(np.asarray(pointers)[-1])
        if count > len(data):
            raise ValueError(
                f"`indptr` of a sparse matrix ends with {count}, but there are {len(data)} entries."
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
def csm(site: Site, data: Array, indices: Array, pointers: Array, shape: Array) -> OrderedBCOO:
    """Build a matrix from SciPy's arrays; the shape must be known while JAX traces.

    If a traced ``indptr`` comes from another matrix, it is known whether it uses all of ``data``.
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
def csm_grad(
    site: Site, data: Array, minor: Array, pointers: Array, shape: Array, *gradient: Array
) -> Array:
    """The gradient's value at each entry, with its duplicates added; 0 if it has no entry there."""
    m, n = (int(k) for k in np.asarray(site.static(3)))
    length = len(pointers) - 1
    width = n if length == m else m
    g_data, g_minor, g_pointers = gradient[:3]
    g_major = major_of(g_pointers, len(g_data))
    # Here rows and columns stand for the major and minor axis, whichever these are.
    g = ordered(g_data, g_major, g_minor, (length, width), "csr", exact=False)
    return lookup(g, major_of(pointers, len(data)), minor)
