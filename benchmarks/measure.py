"""Two things timed side by side, and how sure one can be of the result.

A machine's speed drifts, and two compilations of one program differ by a percent or so. Therefore only
what ran at nearly the same time is compared, in pairs, each with compilations of its own; the figure
is the median over the pairs, with its order-statistic interval.

Tried on hand-written JAX beside itself, on a busy machine: a pair of two batches of 50 ms was off by
1.4 % (root mean square of the median of 15 pairs), one of ten batches of 5 ms in turns by 0.9 %.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import comb
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import numpy as np

BATCHES = 20  # of each side in a pair of repeated calls
BATCH = 0.005  # seconds that one takes
# Seconds of a side in a pair, and batches at least: one call of 2,000 steps takes 50 ms on a GPU.
_LONGEST, _FEWEST = 0.3, 5


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


def in_turns(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Pairs:
    """Call two functions, each of which measures and returns seconds; who goes first alternates."""
    return Pairs(*in_rounds((ours, theirs), pairs))


def in_rounds(sides: Sequence[Callable[[], float]], rounds: int) -> np.ndarray:
    """Seconds that functions measure, (functions, rounds), in turns: to and fro through them."""
    seconds = np.empty((len(sides), rounds))
    for k in range(rounds):
        for side in range(len(sides))[:: 1 if k % 2 == 0 else -1]:
            seconds[side, k] = sides[side]()
    return seconds


def repeated_calls(
    make: Callable[[], tuple[Callable, Callable]], args: Sequence, pairs: int
) -> Pairs:
    """Seconds of one call of two compiled functions, which are made anew for each pair."""
    timings = [pair_of_calls(*make(), args) for _ in range(pairs)]
    return Pairs(*np.transpose(timings))


def pair_of_calls(
    ours: Callable, theirs: Callable, args: Sequence, wait: Callable = jax.block_until_ready
) -> tuple[float, float]:
    """Of each the median of batches in turns: an interruption hits few of them.

    ``wait`` takes a result and returns when it is there.
    """

    def batch(f: Callable, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            wait(f(*args))
        return (time.perf_counter() - start) / calls

    for f in (ours, theirs):
        batch(f, 2)  # the first call compiles, the second fills JAX's fast path
    seconds = min(batch(f, 5) for f in (ours, theirs))
    calls = max(1, round(BATCH / seconds))
    n = min(BATCHES, max(_FEWEST, round(_LONGEST / (calls * seconds))))
    with no_collection():
        batches = in_turns(lambda: batch(ours, calls), lambda: batch(theirs, calls), n)
    return float(np.median(batches.ours)), float(np.median(batches.theirs))


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
def own_cache() -> Iterator[None]:
    """A cache folder of loopax inside: ``loops="auto"`` measures where it can keep the answer."""
    variable = "LOOPAX_CACHE_DIR"
    before = os.environ.get(variable)
    with TemporaryDirectory() as folder:
        os.environ[variable] = folder
        try:
            yield
        finally:
            os.environ.pop(variable)
            os.environ |= {} if before is None else {variable: before}


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
