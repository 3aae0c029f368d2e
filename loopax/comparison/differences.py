"""Relative differences of two results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loopax.diagnosis.numbers import Entry, first_true

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def difference(left: ArrayLike, right: ArrayLike) -> float:
    """The largest difference of two arrays, relative to the largest finite number in them.

    Infinite where their shapes differ, or one is nan or infinite and the other is not.
    """
    if np.shape(left) != np.shape(right):
        return float("inf")
    apart = _apart(left, right)
    if not apart.size:
        return 0.0
    return float(apart.max() / _scale(left, right))


def largest(left: Sequence[Any], right: Sequence[Any]) -> float:
    """The largest difference of two lists of results, compared pair by pair."""
    return max((difference(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def joined_difference(left: Sequence[Any], right: Sequence[Any]) -> float:
    """The largest difference of two lists of arrays, relative to the largest number in either."""
    flat = [
        np.concatenate([np.ravel(x) for x in arrays] or [np.zeros(0)]) for arrays in (left, right)
    ]
    return difference(*flat)


def first_apart(left: ArrayLike, right: ArrayLike, tolerance: float) -> Entry | None:
    """The first entry in which two arrays of one shape differ by more than ``tolerance``."""
    return first_true(_apart(left, right) > tolerance * _scale(left, right))


def _apart(left: ArrayLike, right: ArrayLike) -> Any:
    a, b = (np.asarray(x) for x in (left, right))
    kind = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    a, b = a.astype(kind), b.astype(kind)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(equal, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _scale(left: ArrayLike, right: ArrayLike) -> float:
    numbers = [
        np.abs(np.asarray(x, complex if np.iscomplexobj(x) else float)) for x in (left, right)
    ]
    finite = [float(x[np.isfinite(x)].max(initial=0.0)) for x in numbers]
    return max(*finite, np.finfo(float).tiny)
