"""Typed lists in JAX: rows of one shape stacked along a leading axis, or rows of unequal shapes.

A list whose rows have one shape is a `StackedList`, which loops can read and write. Rows of different
shapes cannot be stacked: such a list is a `RaggedList`, whose rows are separate JAX values. The length is
known while JAX traces in both forms. A list of keys is a stacked array of keys, a list of lists a stack of
stacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import BCOO
from jax.typing import DTypeLike
from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.random.type import RandomType
from pytensor.typed_list.type import TypedListType

from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.jax_backend.values.x64 import as_declared
from loopax.numerics.arrays import Array


@jax.tree_util.register_pytree_node_class
class StackedList(Sequence[Any]):
    """A list of rows of one shape, stacked along the leading axis of ``data``.

    It is a sequence (``len``, indices, slices, iteration), ``np.asarray`` of it is the stacked array,
    and as a pytree it has the leaves of ``data``. For sparse matrices ``data`` is a ``BCOO`` with a
    leading batch axis, and a row is a ``BCOO``.

    >>> rows = StackedList(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> len(rows), rows[-1], np.asarray(rows).shape
    (2, array([3., 4.]), (2, 2))
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.data,), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any]) -> StackedList:
        return cls(*children)

    def __len__(self) -> int:
        return int(jax.tree.leaves(self.data)[0].shape[0])

    def __getitem__(self, k: int | slice) -> Any:
        if isinstance(k, slice):
            return StackedList(_part(self.data, k))
        if isinstance(k, tuple):
            raise TypeError(
                f"A list of {len(self)} rows takes one index, not {k}. Under jax.vmap lists become a "
                "batch along the leading axis of each array: select one with jax.tree.map(lambda x: "
                "x[0], rows), or index the arrays in rows.data."
            )
        if not -len(self) <= k < len(self):  # JAX would clamp it, and iteration would not end
            raise IndexError(f"Index {k} is out of range for a list of {len(self)} rows.")
        return _part(self.data, k)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        data = self.data.todense() if _is_batch(self.data) else self.data
        return np.array(data, dtype=dtype) if copy else np.asarray(data, dtype=dtype)

    def __repr__(self) -> str:
        return f"StackedList({self.data!r})"


def _is_batch(data: object) -> bool:
    """Whether ``data`` are sparse matrices as JAX stacks them, with leading axes in the shape."""
    return isinstance(data, BCOO) and len(data.shape) > 2


def _part(data: Any, k: int | slice) -> Any:
    """Row ``k``, or the rows of a slice."""
    if not _is_batch(data):
        return jax.tree.map(lambda x: x[k], data)
    entries, indices = data.data[k], data.indices[k]
    rows = entries.shape[:1] if isinstance(k, slice) else ()
    return BCOO((entries, indices), shape=(*rows, *data.shape[1:]))


def sparse_batch(rows: StackedList, row_type: SparseTensorType) -> StackedList:
    """Stack ``rows``, sparse matrices in the form of the program, in JAX's form."""
    x = rows.data
    if not isinstance(x, BCOO):  # a list without rows
        n, dtype = [k or 0 for k in row_type.shape], row_type.dtype
        entries = jnp.zeros((0, 0), dtype), jnp.zeros((0, 0, 2), np.int32)
        return StackedList(BCOO(entries, shape=(0, *n)))
    entries = jnp.asarray(x.data), jnp.asarray(x.indices)
    return StackedList(BCOO(entries, shape=(len(rows), *x.shape)))


@jax.tree_util.register_pytree_node_class
class RaggedList(Sequence[Any]):
    """A list of rows of unequal shapes. It stays inside a program: as an output it is a Python list."""

    def __init__(self, *rows: object) -> None:
        self.rows = rows

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.rows, None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> RaggedList:
        return cls(*children)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int | slice) -> Any:
        return self.rows[k]


TypedList: TypeAlias = StackedList | RaggedList


def from_rows(rows: Sequence[Any], row_type: Type) -> TypedList:
    """Make a typed list of ``rows``, values of ``row_type``; stacked if possible."""
    row = row_type()
    rows = [as_row(x, row) for x in rows]
    if not rows:
        return empty(row_type)
    first, *others = [_form(x) for x in rows]
    if any(form != first for form in others):
        return RaggedList(*rows)
    return StackedList(jax.tree.map(lambda *xs: _stack(xs), *rows))


def as_list(x: TypedList | Sequence[Any], list_type: TypedListType) -> TypedList:
    """Convert ``x``, a value of ``list_type`` in any form, even a Python list, to one of the two forms."""
    return x if isinstance(x, StackedList | RaggedList) else from_rows(x, list_type.ttype)


def as_row(x: Any, v: Variable) -> Any:
    """Convert ``x``, a value of ``v``: an array to the dtype that ``v`` declares, a list to its form."""
    return as_list(x, v.type) if isinstance(v.type, TypedListType) else as_declared(x, v)


def with_padded_rows(x: object) -> Any:
    """If the rows of ``x`` are padded, convert it to a list of them, each with its own length."""
    if not isinstance(x, PaddedArray) or not x.axis:
        return x
    lengths = jnp.broadcast_to(x.length, x.data.shape[:1])
    return StackedList(PaddedArray(x.data, lengths, x.axis - 1))


def empty(row_type: Type) -> StackedList:
    """A list without rows. A dimension that ``row_type`` leaves open has length 0."""
    return StackedList(jax.tree.map(lambda x: x[None][:0], _example(row_type)))


def _example(row_type: Any) -> Any:
    if isinstance(row_type, TypedListType):
        return empty(row_type.ttype)
    if isinstance(row_type, RandomType):
        return jax.random.key(0)
    return np.zeros([n or 0 for n in row_type.shape], row_type.dtype)


def _form(x: object) -> Any:
    leaves, tree = jax.tree.flatten(x)
    return tree, [np.shape(leaf) for leaf in leaves]


def _stack(xs: Sequence[Array]) -> Array:
    return jnp.stack(xs) if any(isinstance(x, jax.Array) for x in xs) else np.stack(xs)
