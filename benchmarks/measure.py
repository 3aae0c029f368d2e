"""Two things timed side by side, and how sure one can be of the result.

A machine's speed drifts, so only what ran at nearly the same time is compared: pairs of timings, one
of ours and one of theirs, one right after the other, whichever goes first going second in the next
pair. The figure is the median over the pairs; its interval is the order-statistic one.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import comb
from typing import Any, NamedTuple

import jax
import numpy as np

BATCH = 0.05  # seconds that one timing of repeated calls takes: 1000 times a scheduler's 50 us


class Estimate(NamedTuple):
    """A median, and the interval that holds the true one with 95 % confidence."""

    median: float
    low: float
    high: float


class Pairs(NamedTuple):
    """Seconds, one of each side for each pair."""

    ours: np.ndarray
    theirs: np.ndarray

    @property
    def ratio(self) -> Estimate:
        return estimate(self.ours / self.theirs)

    @property
    def difference(self) -> Estimate:
        return estimate(self.ours - self.theirs)


def estimate(values: Any) -> Estimate:
    """The median of independent values, whatever their distribution.

    The number of values below the true median is Binomial(n, 1/2), so the k-th smallest and the k-th
    largest enclose it but for a chance of 2 P(that number < k). k is the largest that keeps this
    within 5 %. Below six values none does, and the interval is the whole range.
    """
    values = np.sort(values)
    n = len(values)
    outside = np.cumsum([2 * comb(n, j) / 2**n for j in range(n // 2)])
    k = max(1, int(np.searchsorted(outside, 0.05, side="right")))
    return Estimate(float(np.median(values)), float(values[k - 1]), float(values[-k]))


def interleaved(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Pairs:
    """Call two functions, each of which measures and returns seconds, in alternating order."""
    seconds = np.empty((pairs, 2))
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            seconds[pair, side] = (ours, theirs)[side]()
    return Pairs(seconds[:, 0], seconds[:, 1])


def repeated(
    ours: Callable, theirs: Callable, args: Sequence, pairs: int, calls: int | None = None
) -> Pairs:
    """Seconds of one call of two compiled functions; each timing is the mean of a batch of calls."""

    def batch(f: Callable, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(f(*args))
        return (time.perf_counter() - start) / calls

    with no_collection():
        for f in (ours, theirs):
            batch(f, 2)  # the first call compiles, the second fills JAX's fast path
        if calls is None:
            once = min(batch(f, 5) for f in (ours, theirs))
            calls = max(1, round(BATCH / once))
        return interleaved(lambda: batch(ours, calls), lambda: batch(theirs, calls), pairs)


def first(make: Callable[[], Callable], args: Sequence) -> float:
    """Seconds from nothing to the first value: make the function, trace, compile, run.

    JAX's caches are emptied before. A full collection of Python's garbage takes about as long as
    what is measured here, so the garbage of the timing before is not left for this one.
    """
    jax.clear_caches()
    gc.collect()
    start = time.perf_counter()
    jax.block_until_ready(make()(*args))
    return time.perf_counter() - start


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection of Python's inside."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
