"""Sorting and searching in vectors, as loops."""

from __future__ import annotations

import numpy as np

from loopax.base.compiling.pipeline import njit_inner

SHORT = 8  # the most values that are sorted by insertion alone


@njit_inner
def before(a: float, b: float) -> bool:
    """Whether ``a`` sorts before ``b``; nan sorts last."""
    return a < b or (b != b and a == a)


@njit_inner
def insert_in_order(values: np.ndarray, order: np.ndarray, start: int, stop: int) -> None:
    """Write the stable order of ``values[start:stop]`` into ``order[start:stop]``, by insertion."""
    for k in range(start, stop):
        at = k
        while at > start and before(values[k], values[order[at - 1]]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = k


@njit_inner
def sort_order(values: np.ndarray, order: np.ndarray, room: np.ndarray) -> None:
    """Write the stable order of ``values`` into ``order``, by merging runs of growing length."""
    n = values.shape[0]
    run = SHORT
    for start in range(0, n, run):
        insert_in_order(values, order, start, min(start + run, n))
    while run < n:
        for start in range(0, n, 2 * run):
            middle, stop = min(start + run, n), min(start + 2 * run, n)
            i, j = start, middle
            for k in range(start, stop):
                if j >= stop or (i < middle and not before(values[order[j]], values[order[i]])):
                    room[k] = order[i]
                    i += 1
                else:
                    room[k] = order[j]
                    j += 1
        for k in range(n):
            order[k] = room[k]
        run *= 2


@njit_inner
def place_of(x: float, values: np.ndarray, right: bool) -> int:
    """The insertion point of ``x`` in the sorted ``values``: left or right of equal values."""
    # The comparisons of `jnp.searchsorted`, so that both forms agree where ``values`` are not sorted. Their
    # number does not depend on ``x``, and there is no branch to mispredict.
    n = values.shape[0]
    low, high, room = 0, n, n
    while room > 0:
        middle = low + (high - low) // 2
        if right:
            is_left = before(x, values[middle])
        else:
            is_left = not before(values[middle], x)
        low, high = (low if is_left else middle), (middle if is_left else high)
        room //= 2
    return high


FUNCTIONS = {f.__name__: f for f in (insert_in_order, sort_order, place_of)}
