"""Sparse matrices in JAX: one form of ``BCOO``, and conversions to and from it.

PyTensor's sparse values are SciPy's CSR and CSC matrices. Here each is an `OrderedBCOO`: a JAX ``BCOO``
whose entries lie in the order of the declared format, so that ``csm_properties`` finds SciPy's own arrays.
JAX must know the number of entries while it traces. If the number depends on values, there are as many as
there can be at most, and the surplus entries are *padding*, as in JAX: at the end, 0, with indices outside
of the matrix, which every op ignores. Such a matrix is not `exact`.

Two kinds of padding differ for JAX's derivatives. Unused room has the shape as its indices. An element that
happens to be 0, as in ``x - x``, has no entry in SciPy's result, but has a derivative: it is stored at ``(m
+ 1 + row, n + 1 + column)``, and ops whose gradient PyTensor calls regular include it, at its place; so
does a structured conversion of a formerly dense matrix. It does not affect values, nor other structured
ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO
from pytensor.sparse.type import SparseTensorType

from loopax.base.errors import LoopTypeError
from loopax.calling.types import has_shape
from loopax.jax_backend.values.x64 import holds, refuse_wrapping
from loopax.numerics.arrays import Array


def known(*xs: object) -> bool:
    """Whether all of ``xs`` are known while JAX traces."""
    return not any(isinstance(x, jax.core.Tracer) for x in xs)


_AUX = ("shape", "format", "exact", "unique_indices")


@jax.tree_util.register_pytree_node_class
class OrderedBCOO(BCOO):
    """A ``BCOO`` of a matrix, with its entries in the order of a format.

    ``format`` is ``"csr"``, entries row by row, or ``"csc"``, column by column; within a row or
    column in any order. ``exact`` says that no entry is padding, ``unique_indices`` that no two have
    the same indices and that they are sorted within rows or columns too. All three are static.
    Leaves may be NumPy arrays, which are known while JAX traces.
    """

    format: str
    exact: bool

    @property
    def row(self) -> Array:
        """The row of each entry: NumPy where it is known while JAX traces."""
        return (np.asarray(self.indices) if known(self.indices) else self.indices)[:, 0]

    @property
    def col(self) -> Array:
        return (np.asarray(self.indices) if known(self.indices) else self.indices)[:, 1]

    @property
    def major(self) -> Array:
        """The row of each entry of a CSR matrix, or the column of each entry of a CSC matrix."""
        return self.col if self.format == "csc" else self.row

    @property
    def minor(self) -> Array:
        return self.row if self.format == "csc" else self.col

    @property
    def hidden(self) -> Array:
        """A mask of the entries for elements that happen to be 0."""
        return self.row > self.shape[0]

    @property
    def places(self) -> tuple[Any, Any]:
        """The row and column of each entry, including hidden ones."""
        row, col = self.row, self.col
        if self.exact:
            return row, col
        xp: Any = np if isinstance(row, np.ndarray) else jnp
        m, n = self.shape
        return xp.where(row > m, row - m - 1, row), xp.where(row > m, col - n - 1, col)

    def tree_flatten(self) -> Any:
        return (self.data, self.indices), tuple(getattr(self, name) for name in _AUX)

    @classmethod
    def tree_unflatten(cls, aux: tuple[Any, ...], children: tuple[Any, Any]) -> OrderedBCOO:
        matrix = object.__new__(cls)
        matrix.data, matrix.indices = children
        matrix.__dict__.update(zip(_AUX, aux, strict=True), indices_sorted=False)
        return matrix


def ordered(
    data: Array,
    row: Array,
    col: Array,
    shape: Sequence[int] | np.ndarray,
    format: str,
    *,
    exact: bool,
    unique: bool = False,
) -> OrderedBCOO:
    """Build a matrix from entries that are in order already."""
    xp: Any = np if known(row, col) else jnp
    indices = xp.stack([xp.asarray(row), xp.asarray(col)], axis=-1).astype(np.int32)
    aux = (tuple(int(n) for n in shape), "csc" if format == "csc" else "csr", exact, unique)
    return OrderedBCOO.tree_unflatten(aux, (data, indices))


def hiding(x: OrderedBCOO, hidden: Array) -> tuple[Any, Any]:
    """The indices of the entries of ``x``, with ``hidden`` ones moved outside."""
    row, col = x.places
    m, n = x.shape
    hidden = hidden & (row < m)
    return jnp.where(hidden, row + m + 1, row), jnp.where(hidden, col + n + 1, col)


def with_data(x: OrderedBCOO, data: Array) -> OrderedBCOO:
    """The matrix with the indices of ``x`` and the values ``data``."""
    return OrderedBCOO.tree_unflatten(x.tree_flatten()[1], (data, x.indices))


def transposed(x: OrderedBCOO) -> OrderedBCOO:
    """Transpose: CSR becomes CSC, and the entries stay in order."""
    other = "csr" if x.format == "csc" else "csc"
    return ordered(
        x.data, x.col, x.row, x.shape[::-1], other, exact=x.exact, unique=x.unique_indices
    )


def carried(x: OrderedBCOO, n_entries: int | None = None) -> OrderedBCOO:
    """Convert ``x`` for the carry of a loop: not known to be exact, padded to ``n_entries``."""
    m, n = x.shape
    more = (x.nse if n_entries is None else n_entries) - x.nse
    assert more >= 0
    data = jnp.pad(jnp.asarray(x.data), (0, more))
    row = jnp.pad(jnp.asarray(x.row), (0, more), constant_values=m)
    col = jnp.pad(jnp.asarray(x.col), (0, more), constant_values=n)
    return ordered(data, row, col, x.shape, x.format, exact=False)


def as_bcoo(x: Any, sparse_type: SparseTensorType, what: str = "A sparse matrix") -> OrderedBCOO:
    """Convert ``x`` to a value of ``sparse_type``, a ``SparseTensorType``; ``what`` names it in messages.

    Parameters
    ----------
    x
        A SciPy sparse matrix or array, shape (m, n), whose entries are copied, including duplicates and
        explicit zeros if the format is the format of the type; or a ``BCOO`` of that shape, whose entries
        are sorted. If its indices are traced, it is unknown which of them are padding.

    Raises
    ------
    LoopTypeError
        It is dense, of another shape, has a dtype that does not fit, or indices outside of it.

    Examples
    --------
    >>> import pytensor.sparse, scipy.sparse
    >>> kind = pytensor.sparse.SparseTensorType("csr", "float64")
    >>> as_bcoo(scipy.sparse.csr_matrix([[0.0, 2.0], [0.0, 0.0]]), kind).indices
    array([[0, 1]], dtype=int32)
    """
    order = "csc" if sparse_type.format == "csc" else "csr"
    if not (isinstance(x, BCOO) or scipy.sparse.issparse(x)):
        raise LoopTypeError(
            f"{what} must be {_describe(sparse_type)}, got {_describe_value(x)}. Pass "
            f"scipy.sparse.{order}_matrix(x), or make it sparse in the program, with "
            f"pytensor.sparse.{order}_from_dense(x)."
        )
    fits = has_shape(x.shape, sparse_type.shape)
    if isinstance(x, BCOO):
        fits = fits and x.n_batch == x.n_dense == 0
    if not fits or not holds(sparse_type.dtype, str(x.dtype)):
        raise LoopTypeError(
            f"{what} must be {_describe(sparse_type)}, got {_describe_value(x)}. Convert it, for "
            f"example with x.astype({sparse_type.dtype!r}), or declare another type for the input."
        )
    if isinstance(x, BCOO):
        return _from_bcoo(x, order, sparse_type.dtype, what)
    return _from_scipy(x, order, sparse_type.dtype, what)


def bcoo_to_scipy(x: BCOO, format: str) -> Any:
    """Convert a concrete ``BCOO`` to a SciPy matrix in ``format``, without padding.

    >>> import scipy.sparse
    >>> bcoo_to_scipy(BCOO.fromdense(jnp.eye(2), nse=4), "csc").toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    axis = 1 if format == "csc" else 0
    indices, shape = np.asarray(x.indices), x.shape
    kept = np.all(indices < np.asarray(shape), axis=1)
    indices, data = indices[kept], np.asarray(x.data)[kept]
    major, minor = indices[:, axis], indices[:, 1 - axis]
    in_order = isinstance(x, OrderedBCOO) and x.format == format
    order = np.argsort(major, kind="stable") if in_order else np.lexsort((minor, major))
    counts = np.bincount(major, minlength=shape[axis])
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    matrix_class = scipy.sparse.csc_matrix if axis else scipy.sparse.csr_matrix
    return matrix_class((data[order], minor[order], pointers), shape=shape).asformat(format)


def _from_scipy(x: Any, order: str, dtype: str, what: str) -> OrderedBCOO:
    x = x.asformat(order)
    m, n = x.shape
    pointers, minor = np.asarray(x.indptr), np.array(x.indices, np.int64)
    major = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    minor, data = minor[: len(major)], np.array(x.data[: len(major)], dtype)
    _check_values(data, minor, (m, n)[1 if order == "csr" else 0], what)
    unique = bool(np.all(np.diff(major * max(m, n, 1) + minor) > 0))
    row, col = (minor, major) if order == "csc" else (major, minor)
    return ordered(data, row, col, x.shape, order, exact=True, unique=unique)


def _from_bcoo(x: BCOO, order: str, dtype: str, what: str) -> OrderedBCOO:
    if np.dtype(str(x.dtype)) != dtype:
        data = x.data.astype(
            dtype if isinstance(x.data, np.ndarray) else jax.dtypes.canonicalize_dtype(dtype)
        )
    else:
        data = x.data
    if isinstance(x, OrderedBCOO) and x.format == order:
        return with_data(x, data)
    m, n = x.shape
    if not known(x.indices):
        valid = jnp.all((x.indices >= 0) & (x.indices < jnp.asarray(x.shape)), axis=1)
        row, col = jnp.where(valid, x.indices[:, 0], m), jnp.where(valid, x.indices[:, 1], n)
        return arrange(jnp.where(valid, data, 0), row, col, x.shape, order, exact=False)
    indices = np.asarray(x.indices)
    kept = np.flatnonzero(np.all(indices < np.asarray(x.shape), axis=1))
    _check_values(None, indices[kept], max(m, n), what)
    row, col = indices[kept].T
    return arrange(data[kept], row, col, x.shape, order, exact=True)


def arrange(
    data: Array,
    row: Array,
    col: Array,
    shape: Sequence[int] | np.ndarray,
    format: str,
    *,
    exact: bool,
) -> OrderedBCOO:
    """Build a matrix from entries in any order; entries with the shape as indices are padding."""
    unique = False
    if known(row, col):
        row, col = np.asarray(row), np.asarray(col)
        keys = (row, col) if format == "csc" else (col, row)
        order: Any = np.lexsort(keys)
        steps = np.diff(np.stack(keys)[:, order], axis=1)
        unique = exact and bool(np.all(np.any(steps != 0, axis=0)))
    else:
        data, row, col = jnp.asarray(data), jnp.asarray(row), jnp.asarray(col)
        order = jnp.lexsort((row, col) if format == "csc" else (col, row))
    return ordered(data[order], row[order], col[order], shape, format, exact=exact, unique=unique)


def _check_values(data: np.ndarray | None, minor: np.ndarray, length: int, what: str) -> None:
    if minor.size and (minor.min() < 0 or minor.max() >= length):
        raise LoopTypeError(
            f"{what} has entries at the indices {minor.min()} to {minor.max()} of an axis of length "
            f"{length}: its `indices` do not fit a matrix of its shape. Build it again, with "
            "scipy.sparse.csr_matrix((data, (rows, columns)), shape=shape)."
        )
    if data is not None:
        refuse_wrapping(data, what)


def _describe(sparse_type: SparseTensorType) -> str:
    shape = ", ".join("?" if n is None else str(n) for n in sparse_type.shape)
    return f"a sparse {sparse_type.format} matrix of {sparse_type.dtype}, shape ({shape})"


def _describe_value(x: Any) -> str:
    if isinstance(x, BCOO) and x.n_batch + x.n_dense:
        return f"a BCOO with batched or dense dimensions, shape {x.shape}"
    if not hasattr(x, "shape"):
        return type(x).__name__
    kind = f"a {type(x).__name__} of " if isinstance(x, BCOO) or scipy.sparse.issparse(x) else ""
    return f"{kind}{x.dtype}, shape {x.shape}"
