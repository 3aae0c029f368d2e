"""Arrays of indices that are known while JAX traces, as XLA reads them at the least cost.

JAX computes which of them count from the end, and which are out of range, each time that the program runs,
in the read as well as in its derivative: the arrays are arguments of the program. Both are known here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ASSUMED = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def in_range(
    entries: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The static ``entries`` of an index of an array of ``shape``, and what ``x.at[...]`` may assume.

    They are slices, integers, arrays of integers and masks, within range. No integer comes back negative,
    arrays have 32 bits where these suffice, a mask is the positions where it is true.
    """
    known: list[Any] = []
    axis = 0
    for e in entries:
        if e is None or isinstance(e, slice):
            known.append(e)
            axis += e is not None
        elif np.asarray(e).dtype == bool:
            known += [e] if np.ndim(e) == 0 else map(_positions, e.nonzero(), shape[axis:])
            axis += np.ndim(e)
        else:
            known.append(_positions(e, shape[axis]))
            axis += 1
    return tuple(known), _ASSUMED


def _positions(k: Any, length: int) -> Any:
    """Indices along an axis, counted from its beginning."""
    at = np.asarray(k).astype(np.int64)
    at = np.where(at < 0, at + length, at)
    return at.astype(np.int32) if length <= np.iinfo(np.int32).max else at
