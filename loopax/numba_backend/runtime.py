"""The few functions that an emitted program calls: checks of indices and lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import overload


@njit
def index(i: int, n: int) -> int:
    """Position ``i`` of an axis of length ``n``, counted from the end where it is negative."""
    if i < 0:
        i += n
    if i < 0 or i >= n:
        raise IndexError("index is out of bounds")
    return i


@njit
def slice_forward(start: int, stop: int, step: int, n: int) -> tuple[int, int]:
    """First position and number of positions of ``start:stop:step`` with a positive step."""
    if start < 0:
        start = max(start + n, 0)
    if stop < 0:
        stop += n
    return start, max((min(stop, n) - start + step - 1) // step, 0)


@njit
def slice_backward(start: int, stop: int, step: int, n: int) -> tuple[int, int]:
    """First position and number of positions of ``start:stop:step`` with a negative step."""
    if start < 0:
        start = max(start + n, -1)
    if stop < 0:
        stop = max(stop + n, -1)
    start = min(start, n - 1)
    return start, max((start - stop - step - 1) // -step, 0)


@njit
def slice_bounds(start: int, stop: int, step: int, n: int) -> tuple[int, int]:
    """The same for a step whose sign is only known now."""
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step > 0:
        return slice_forward(start, stop, step, n)
    return slice_backward(start, stop, step, n)


@njit
def agree(n: int, m: int) -> int:
    """The common length of two axes; only an axis whose type says so is broadcast."""
    if n != m:
        raise ValueError("Input dimension mismatch: the lengths of two axes differ")
    return n


@njit
def stride(n: int, m: int) -> int:
    """How an axis of length ``n`` is read where ``m`` are written: 0 where it is broadcast."""
    if n == m:
        return 1
    if n != 1:
        raise ValueError("could not broadcast input array to the shape that is written to")
    return 0


@njit
def size(n: int) -> int:
    """``n``, a length."""
    if n < 0:
        raise ValueError("negative dimensions are not allowed")
    return n


@njit
def not_empty(n: int) -> None:
    if n == 0:
        raise ValueError("zero-size array to reduction operation which has no identity")


@njit
def grown(rows: Any) -> Any:
    """A copy with room for twice as many rows."""
    more = np.empty((2 * rows.shape[0],) + rows.shape[1:], rows.dtype)
    for k in range(rows.shape[0]):
        more[k] = rows[k]
    return more


def as_scalar(x: Any) -> Any:
    """The number in a 0-d array, or the number itself."""
    raise NotImplementedError("only inside of Numba")


@overload(as_scalar)
def _as_scalar(x):  # type: ignore[no-untyped-def]  # Numba compares the two signatures
    if isinstance(x, types.Array):
        return lambda x: x.item()
    return lambda x: x


FUNCTIONS = {
    f.__name__: f
    for f in (
        index,
        slice_forward,
        slice_backward,
        slice_bounds,
        agree,
        stride,
        size,
        grown,
        not_empty,
        as_scalar,
    )
}
