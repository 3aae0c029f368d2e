"""Checks of indices and lengths, which an emitted program calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from loopax.base.compiling.pipeline import njit_inner
from loopax.base.errors import UNEQUAL_LENGTHS
from loopax.numba_backend.runtime import (
    blas,
    ciphers,
    division,
    instructions,
    large_matrices,
    linalg,
    memory,
    ordering,
    products,
    safepoints,
    sums,
    views,
)
from loopax.numerics import poly_gamma, vector_functions


@njit_inner
def index(i: int, n: int) -> int:
    """Check the index ``i`` of an axis of length ``n``; negative ones count from the end."""
    if i < 0:
        i += n
    if i < 0 or i >= n:
        raise IndexError("index is out of bounds")
    return i


@njit_inner
def signed(k: np.uint64) -> np.int64:
    """Convert ``k`` from uint64 to int64; a larger number is out of range of every axis."""
    return np.int64(min(k, np.uint64(9223372036854775807)))


@njit_inner
def slice_forward(start: int, stop: int, step: int, n: int) -> tuple[int, int]:
    """First position and number of positions of ``start:stop:step`` with a positive step."""
    if start < 0:
        start = max(start + n, 0)
    if stop < 0:
        stop = max(stop + n, 0)  # else the distance from a large start wraps around
    distance = min(stop, n) - start
    return start, (distance - 1) // step + 1 if distance > 0 else 0


@njit_inner
def slice_backward(start: int, stop: int, step: int, n: int) -> tuple[int, int]:
    """First position and number of positions of ``start:stop:step`` with a negative step."""
    if start < 0:
        start = max(start + n, -1)
    if stop < 0:
        stop = max(stop + n, -1)
    start = min(start, n - 1)
    distance = start - stop
    step = max(step, -n - 1)  # the least integer has no negative
    return start, (distance - 1) // -step + 1 if distance > 0 else 0


@njit_inner
def slice_bounds(start: int, stop: int, step: int, n: int) -> tuple[int, int]:
    """First position and number of positions of a slice with a step of unknown sign."""
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step > 0:
        return slice_forward(start, stop, step, n)
    return slice_backward(start, stop, step, n)


@njit_inner
def agree(n: int, m: int) -> int:
    """The common length of two axes; only an axis whose type says so is broadcast."""
    if n != m:
        raise ValueError(UNEQUAL_LENGTHS)
    return n


@njit_inner
def specified(n: int, m: int) -> None:
    if n != m:
        raise AssertionError("SpecifyShape: a length is not the one specified")


class StateChangesShape(Exception):
    """A state changes its shape: the program has to be written without that assumption."""


@njit_inner
def assumed_kept(n: int, m: int) -> None:
    if n != m:
        raise StateChangesShape


@njit_inner
def kept(n: int, m: int) -> None:
    if n != m:
        raise ValueError("a state of a loop changes its shape")


@njit_inner
def stride(n: int, m: int) -> int:
    """The stride of an axis of length ``n`` against one of length ``m``: 0 where it is broadcast."""
    if n == m:
        return 1
    if n != 1:
        raise ValueError("could not broadcast input array to the shape that is written to")
    return 0


@njit_inner
def broadcast_index(n: int, m: int) -> int:
    """The common length of two axes, where length 1 broadcasts."""
    if n == m or m == 1:
        return n
    if n != 1:
        raise IndexError("shape mismatch: indexing arrays could not be broadcast together")
    return m


@njit_inner
def mask_length(n: int, m: int) -> None:
    if n != m:
        raise IndexError("boolean index did not match indexed array along one axis")


@njit_inner
def same_size(n: int, m: int) -> None:
    if n != m:
        raise ValueError("cannot reshape array: the new shape has another number of elements")


@njit_inner
def left_over(total: int, size_of_others: int) -> int:
    """The inferred length of an axis, where the other axes have ``size_of_others`` elements."""
    if size_of_others <= 0 or total % size_of_others != 0:
        raise ValueError("cannot reshape array: the new shape has another number of elements")
    return total // size_of_others


@njit_inner
def length_of(n: int, total: int, whole: int) -> int:
    """Check a length of a new shape whose product is ``whole``; infer it where it is -1."""
    if n == -1:
        return left_over(total, -whole)
    if n < 0 or (whole >= 0 and whole != total):
        raise ValueError("cannot reshape array: the new shape has another number of elements")
    return n


@njit_inner
def range_length(start: float, stop: float, step: float) -> int:
    """The number of elements of ``arange``."""
    n = np.ceil((stop - start) / step)
    if not abs(n) < 2**62:
        raise ValueError("Maximum allowed size exceeded")
    return max(int(n), 0)


@njit_inner
def repeated(counts: np.ndarray, n: int) -> Any:
    """The source position of each element of ``repeat``; one count may serve all."""
    if counts.shape[0] != n and counts.shape[0] != 1:
        raise ValueError("operands could not be broadcast together: one count for each element")
    total = 0
    for k in range(n):
        count = counts[k % counts.shape[0]]
        if count < 0:
            raise ValueError("repeats may not contain negative values.")
        total += count
    positions = np.empty(total, np.int64)
    at = 0
    for k in range(n):
        for _ in range(counts[k % counts.shape[0]]):
            positions[at] = k
            at += 1
    return positions


@njit_inner
def size(n: int) -> int:
    """Check that the length ``n`` is not negative."""
    if n < 0:
        raise ValueError("negative dimensions are not allowed")
    return n


@njit_inner
def not_empty(n: int) -> None:
    if n == 0:
        raise ValueError("zero-size array to reduction operation which has no identity")


@njit_inner
def grown(rows: np.ndarray) -> Any:
    """Copy rows to a buffer of twice as many."""
    larger = np.empty((2 * rows.shape[0],) + rows.shape[1:], rows.dtype)
    for k in range(rows.shape[0]):
        larger[k] = rows[k]
    return larger


def as_scalar(x: np.ndarray) -> Any:
    """The number in a 0-d array, or the number itself."""
    raise NotImplementedError("only inside of Numba")


@overload(as_scalar)
def _as_scalar(x):  # type: ignore[no-untyped-def]  # Numba compares the two signatures
    if isinstance(x, types.Array):
        return lambda x: x.item()
    return lambda x: x


FUNCTIONS = (
    {"math": math}
    | blas.FUNCTIONS
    | ciphers.FUNCTIONS
    | large_matrices.FUNCTIONS
    | linalg.FUNCTIONS
    | memory.FUNCTIONS
    | division.FUNCTIONS
    | instructions.FUNCTIONS
    | ordering.FUNCTIONS
    | poly_gamma.FUNCTIONS
    | products.FUNCTIONS
    | safepoints.FUNCTIONS
    | sums.FUNCTIONS
    | vector_functions.FUNCTIONS
    | views.FUNCTIONS
    | {
        f.__name__: f
        for f in (
            index,
            signed,
            slice_forward,
            slice_backward,
            slice_bounds,
            agree,
            stride,
            broadcast_index,
            mask_length,
            same_size,
            left_over,
            length_of,
            range_length,
            repeated,
            specified,
            kept,
            assumed_kept,
            size,
            grown,
            not_empty,
            as_scalar,
        )
    }
)
