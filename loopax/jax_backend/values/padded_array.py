"""``PaddedArray``: an array whose number of rows is only known when the program runs.

A loop that stops early makes one row per step. In JAX an array has a fixed shape, so the rows lie in an
array of as many as the loop could have made, with their number beside it. The rules of ops for it are in
`loopax.jax_backend.ops.padded.masked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from loopax.numerics.arrays import Array


@dataclass(frozen=True)
class FlatPositions:
    """Flattened row-major positions in several axes, one of which has ``length`` elements of ``bound``.

    ``inner`` is the number of elements in the axes after that one. The position of an element in the array
    and its position in the padded array differ if an axis precedes that one.
    """

    length: Any
    bound: int
    inner: int

    def in_room(self, k: jax.Array) -> jax.Array:
        """The position in the padded array of the element at position ``k`` in the array."""
        width = jnp.maximum(self.length * self.inner, 1)
        return k // width * (self.bound * self.inner) + k % width

    def in_array(self, k: Array) -> jax.Array:
        """The position in the array of the element at position ``k`` in the padded array."""
        width = max(self.bound * self.inner, 1)
        return k // width * (self.length * self.inner) + k % width


@jax.tree_util.register_pytree_node_class
class PaddedArray:
    """An array of unknown length: the first ``length`` rows of ``data`` along ``axis``.

    ``np.asarray(trace)`` has these rows, ``len(trace)`` is their number. It is a pytree of ``data`` and
    ``length``, so ``jax.jit``, ``vmap`` and ``lax.scan`` take and return it. In a batch each member has
    its own length: select one with ``trace.member(k)``.

    The rows past the end repeat the last one. So a function of all rows, for example their logarithm,
    is as well defined as on the actual rows, and so is its derivative.

    Parameters
    ----------
    data
        An array, or a pytree of arrays: the rows, and padding past the end.
    length
        An integer scalar.
    axis
        The axis along which the rows lie: the first one, unless a program moves it.

    Examples
    --------
    >>> trace = PaddedArray(jnp.array([1.0, 2.0, 2.0]), 2)
    >>> len(trace), np.asarray(trace)
    (2, array([1., 2.]))
    """

    __slots__ = ("axis", "data", "length")

    def __init__(self, data: Any, length: Array | int, axis: int = 0) -> None:
        self.data, self.length, self.axis = data, length, axis

    def tree_flatten(self) -> tuple[tuple[Any, Any], int]:
        return (self.data, self.length), self.axis

    @classmethod
    def tree_unflatten(cls, axis: int, children: tuple[Any, Any]) -> PaddedArray:
        return cls(*children, axis)

    @property
    def bound(self) -> int:
        """The number of rows that it can hold."""
        n: int = jax.tree.leaves(self.data)[0].shape[self.axis]  # or a symbol
        return n

    @property
    def ndim(self) -> int:
        return int(np.ndim(self.data))

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def member(self, k: int | jax.Array) -> PaddedArray:
        """Member ``k`` of a batch of traces from ``jax.vmap``."""
        return jax.tree.map(lambda x: x[k], self)

    def rows(self) -> Any:
        """The actual rows. Only outside transformations, where their number is known."""
        index = self._index_of_rows
        return jax.tree.map(lambda x: x[index], self.data)

    @property
    def _index_of_rows(self) -> tuple[slice, ...]:
        if np.ndim(self.length):
            raise ValueError(
                f"This is a batch of {np.shape(self.length)[0]} traces, each with its own length: "
                "select one with trace.member(k)."
            )
        return *[slice(None)] * self.axis, slice(int(self.length))

    def __len__(self) -> int:
        return int(jax.tree.leaves(self.data)[0].shape[0] if self.axis else self.length)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        # By NumPy: while a loop is traced, JAX's slice of a concrete array would be a tracer.
        return np.array(np.asarray(self.data)[self._index_of_rows], dtype=dtype)

    def __repr__(self) -> str:
        return f"PaddedArray({self.data!r}, length={self.length!r})"

    def with_data(self, data: Any) -> PaddedArray:
        """An array of the same length and axis with other ``data``."""
        return PaddedArray(data, self.length, self.axis)

    def masked(self, value: ArrayLike) -> jax.Array:
        """``data`` with ``value`` past the end."""
        there = jnp.arange(self.bound) < self.length
        there = there.reshape(-1, *[1] * (self.ndim - self.axis - 1))
        return jnp.where(there, self.data, jnp.asarray(value, self.dtype))

    def positions(self, axes: Sequence[int] | None = None) -> FlatPositions:
        """Flat positions in ``axes``, in that order; the axis of the rows is one of them."""
        axes = range(self.ndim) if axes is None else axes
        inner = [self.data.shape[k] for k in list(axes)[list(axes).index(self.axis) + 1 :]]
        return FlatPositions(self.length, self.bound, int(np.prod(inner, dtype=int)))

    def raveled(self) -> PaddedArray:
        """The elements of the rows one after the other, in the order of the array."""
        if self.ndim == 1:
            return self
        size = self.data.size
        count = self.length * (size // self.bound if self.bound else 0)
        order = self.positions().in_room(jnp.minimum(jnp.arange(size), jnp.maximum(count - 1, 0)))
        return PaddedArray(self.data.reshape(-1)[order], count)

    def rows_at(self, order: jax.Array, length: Array | int) -> PaddedArray:
        """The ``length`` rows at positions ``order``; the last one fills the padding."""
        order = order[jnp.clip(jnp.arange(order.shape[0]), 0, jnp.maximum(length - 1, 0))]
        order = jnp.clip(order, 0, max(self.bound - 1, 0))
        if not self.bound:
            shape = [len(order) if k == self.axis else n for k, n in enumerate(self.data.shape)]
            return PaddedArray(jnp.zeros(shape, self.dtype), length, self.axis)
        rows = jnp.take(self.data, order, axis=self.axis)
        return PaddedArray(rows, length, self.axis).filled_if_empty()

    def filled_if_empty(self) -> PaddedArray:
        """These rows; without rows, the data are numbers that pass no cotangents on.

        The data of an array without rows may be infinite, where the derivative of a sine is nan.
        """
        if not jnp.issubdtype(self.dtype, jnp.inexact):
            return self
        number = jnp.asarray(0.5, self.dtype)  # a number at which most functions are differentiable
        return self.with_data(jnp.where(self.length > 0, self.data, number))

    def cotangent(self, of_data: jax.Array) -> PaddedArray:
        """The cotangent of the rows; the cotangents of ``data`` past the end add to the last row."""
        order = jnp.minimum(jnp.arange(self.bound), jnp.maximum(self.length - 1, 0))
        by_row = jnp.moveaxis(of_data, self.axis, 0)
        rows = jnp.moveaxis(jnp.zeros_like(by_row).at[order].add(by_row), 0, self.axis)
        return PaddedArray(rows, self.length, self.axis).repeated()

    def fitted(self, bound: int) -> PaddedArray:
        """Pad or cut the array so that it can hold ``bound`` rows."""
        return self if bound == self.bound else self.rows_at(jnp.arange(bound), self.length)

    def repeated(self) -> PaddedArray:
        """Repeat the last row past the end."""
        return self.rows_at(jnp.arange(self.bound), self.length)


# An array whose number of rows is known while JAX traces, or only at run time.
AnyArray: TypeAlias = Array | PaddedArray


def lengths(x: AnyArray) -> list[Any]:
    """The length of each axis of ``x``."""
    if not isinstance(x, PaddedArray):
        return list(np.shape(x))
    return [x.length if k == x.axis else n for k, n in enumerate(x.data.shape)]


def as_padded(x: AnyArray, axis: int = 0) -> PaddedArray:
    """View ``x``, an array or a trace, as a trace along ``axis``."""
    return x if isinstance(x, PaddedArray) else PaddedArray(jnp.asarray(x), np.shape(x)[axis], axis)


def cut_if_known(x: object) -> Any:
    """Cut the padding off ``x``, if its length is known; nothing is compiled."""
    if not isinstance(x, PaddedArray) or isinstance(x.length, jax.core.Tracer):
        return x
    return x.rows()


def trimmed(tree: object) -> Any:
    """Replace each `PaddedArray` in ``tree`` by an array, if its length is known; nothing is compiled."""
    return jax.tree.map(_trimmed, tree, is_leaf=lambda x: isinstance(x, PaddedArray))


def _trimmed(x: object) -> Any:
    if not isinstance(x, PaddedArray) or isinstance(x.length, jax.core.Tracer) or np.ndim(x.length):
        return x
    n = int(x.length)
    cut = (*[slice(None)] * x.axis, slice(n))

    def rows(leaf: jax.Array) -> Any:
        if leaf.shape[x.axis] == n:
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) or len(leaf.sharding.device_set) > 1:
            return leaf[cut]
        # JAX would compile a slice of an array for each length.
        return jax.device_put(np.asarray(leaf)[cut], leaf.sharding)

    return jax.tree.map(rows, x.data)


def of_steps(ys: object, n_done: jax.Array, bound: int, reverse: bool) -> PaddedArray:
    """The trace of the rows ``ys``, in the order of the steps; the first ``n_done`` count.

    A reverse loop makes its last row first.
    """
    order = jnp.minimum(jnp.arange(bound), n_done - 1)
    order = jnp.clip(n_done - 1 - order if reverse else order, 0)
    return PaddedArray(jax.tree.map(lambda y: y[order], ys), n_done)


def places_of(mask: jax.Array) -> list[PaddedArray]:
    """The positions where ``mask`` is nonzero: an index array for each axis."""
    count = jnp.sum(mask != 0)
    places = jnp.nonzero(mask, size=mask.size, fill_value=0)
    return [PaddedArray(k, count).repeated() for k in places]
