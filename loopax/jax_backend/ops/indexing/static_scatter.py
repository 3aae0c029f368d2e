"""Reads and writes at positions known at trace time, without a scatter.

``x.at[at].set(y)`` is a scatter, which XLA on the CPU runs as a loop without fusion, and whose derivative
in JAX determines at run time which update was the last at its place. Here the target of each element of
``y`` is known: the write is a read of ``y``, selected where there is one. Read and write are each other's
pullbacks, so that neither has a scatter in its derivatives of any order. 600 of 600 elements take 10 us
where the scatter takes 29, 500 of 10,000 take 30 and 42.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopax.jax_backend.ops.indexing.slices import neutral_of_addition
from loopax.jax_backend.staging.linear import Linear

_DENSE = 20  # most elements for each written one: a sparser update is faster as a plain scatter
_MOST = 2**20  # most elements of an array whose positions are listed


def write_at(
    x: jax.Array, y: jax.Array, entries: tuple[Any, ...], sets: bool, from_zero: bool
) -> Any:
    """Set or add ``y`` at known positions of ``x``; None if a scatter is better.

    Of several values for one place, the last is set. ``from_zero`` says that ``x`` is known to be zero.
    """
    at = _positions(x.shape, entries)
    if at is None:
        return None
    there = np.zeros(x.size, dtype=bool)
    there[at.ravel()] = True
    if not sets and there.sum() < at.size:
        return None
    there = there.reshape(x.shape)
    zero = np.zeros((), y.dtype) if sets or from_zero else neutral_of_addition(y.dtype)
    if y.size == 1:
        placed = jnp.where(there, y.reshape(()), zero)
    else:
        place, _ = _place_and_take(at, x.shape, zero)
        placed = place([], [jnp.broadcast_to(y, at.shape)])[0]
    if from_zero:
        return placed
    return jnp.where(there, placed, x) if sets else x + placed


def read_at(x: jax.Array, entries: tuple[Any, ...]) -> Any:
    """Read ``x`` at known positions; None if a position repeats, or if they are few."""
    at = _positions(x.shape, entries)
    if at is None or len(np.unique(at)) < at.size:
        return None
    known, facts = in_range(entries, x.shape)
    zero = np.zeros((), x.dtype)
    _, read = _place_and_take(at, x.shape, zero, lambda x: x.at[known].get(**facts))
    return read([], [x])[0]


def _positions(shape: tuple[int, ...], entries: tuple[Any, ...]) -> Any:
    """The flat positions that the known ``entries`` select; None if they are few, or ``x`` is large."""
    size = int(np.prod(shape))
    if size > _MOST:
        return None
    at = np.arange(size, dtype=np.int32).reshape(shape)[entries]
    return at if size <= _DENSE * at.size else None


def _place_and_take(
    at: np.ndarray,
    shape: tuple[int, ...],
    zero: np.ndarray,
    read_all: Callable[..., Any] | None = None,
) -> tuple[Linear, Linear]:
    """Functions that place an array at elements ``at`` of zeros of ``shape``, and that take it from there.

    Of several values for one place, the last is placed. Each function is the transpose of the other.
    ``read_all`` reads the elements, if all of them are taken.
    """
    size = int(np.prod(shape))
    source, there = np.zeros(size, dtype=np.int32), np.zeros(size, dtype=bool)
    numbers = np.arange(at.size, dtype=np.int32).reshape(at.shape)
    source[at.ravel()], there[at.ravel()] = numbers.ravel(), True
    last = source[at] == numbers
    source, there = source.reshape(shape), there.reshape(shape)

    def placed(residuals: Sequence[jax.Array], ys: Sequence[jax.Array]) -> list[Any]:
        return [_where(there, _elements(ys[0], source), zero)]

    def taken_last(residuals: Sequence[jax.Array], xs: Sequence[jax.Array]) -> list[Any]:
        return [read_all(xs[0]) if read_all else _where(last, _elements(xs[0], at), zero)]

    place = Linear(placed, lambda residuals, xs: take([], xs), placed)
    take = Linear(taken_last, lambda residuals, ys: place([], ys), taken_last)
    return place, take


def _where(mask: np.ndarray, x: jax.Array, zero: np.ndarray) -> jax.Array:
    return x if mask.all() else jnp.where(mask, x, zero)


def _elements(x: jax.Array, at: np.ndarray) -> jax.Array:
    known, facts = in_range((at,), (x.size,))
    return x.reshape(-1).at[known].get(**facts)


# By default JAX computes which indices count from the end, and which are out of range, in each run, for
# reads and for their derivatives: the index arrays are arguments of the program. Here both are known.
_ASSUMED = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def in_range(
    entries: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Normalize the static ``entries`` of an index; also return what ``x.at[...]`` may assume of them.

    They are slices, integers, arrays of integers and masks, within range. Negative integers become
    positive, arrays get 32 bits where these suffice, and masks become positions.
    """
    known: list[Any] = []
    axis = 0
    for e in entries:
        if e is None or isinstance(e, slice):
            known.append(e)
            axis += e is not None
        elif np.asarray(e).dtype == bool:
            known += [e] if np.ndim(e) == 0 else map(_from_start, e.nonzero(), shape[axis:])
            axis += np.ndim(e)
        else:
            known.append(_from_start(e, shape[axis]))
            axis += 1
    return tuple(known), _ASSUMED


def _from_start(k: np.ndarray, length: int) -> np.ndarray:
    """Convert indices along an axis to count from its start."""
    at = np.asarray(k).astype(np.int64)
    at = np.where(at < 0, at + length, at)
    return at.astype(np.int32) if length <= np.iinfo(np.int32).max else at
