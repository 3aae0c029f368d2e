"""Results computed from shared variables, kept until one of these changes.

PyTensor's functions change a shared array in place, and so does any code that borrowed it
(``borrow=True``): its identity proves nothing. So its numbers are compared with a copy, bit by bit,
and results are computed from that copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.fg import FunctionGraph

from loopax.ir.evaluation.evaluate import evaluate

# Up to this many bytes, copies are compared as bytes: 0.3 us for 1000 numbers, where NumPy takes 3.
_SHORT = 1 << 16
_ALIGNED = 64  # bytes: where JAX on CPU reads a NumPy array in place
_CHUNK = 1 << 15  # numbers compared at a time, so that temporaries stay in the cache


class Memo:
    """The result of ``make`` for NumPy arrays, kept while these have the same bits.

    ``make`` gets copies that nobody changes, and that JAX on CPU reads without another copy.
    """

    def __init__(self, make: Callable[[list[np.ndarray]], Any]) -> None:
        self._make = make
        self._last: tuple[list[np.ndarray], Any] | None = (
            None  # one object: a consistent pair in all threads
        )

    def __call__(self, arrays: Sequence[np.ndarray]) -> Any:
        previous = self._last
        if previous is not None and all(map(same_bits, previous[0], arrays)):
            return previous[1]
        copies = [aligned_copy(x) for x in arrays]
        result = self._make(copies)
        self._last = copies, result
        return result


class MemoizedValues(Memo):
    """The outputs of ``graph`` after ``convert``, or None where an op raised."""

    def __init__(self, graph: FunctionGraph, convert: Callable[..., Any] = list) -> None:
        def make(copies: list[np.ndarray]) -> Any:
            try:
                with np.errstate(all="ignore"):  # as in the program: a NaN is a value
                    return convert(evaluate(graph, *copies))
            except Exception:  # the whole program raises, with its own message
                return None

        super().__init__(make)


def aligned_copy(x: np.ndarray) -> np.ndarray:
    """A copy in C order that JAX on CPU reads in place."""
    buffer = np.empty(x.nbytes + _ALIGNED, dtype=np.uint8)
    offset = -buffer.ctypes.data % _ALIGNED
    copy = buffer[offset : offset + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def same_bits(copy: np.ndarray, x: np.ndarray) -> bool:
    if copy.dtype != x.dtype or copy.shape != x.shape:
        return False
    if x.nbytes <= _SHORT or not (x.flags.c_contiguous and x.dtype.isnative):
        return copy.tobytes() == x.tobytes()
    a, b = copy.reshape(-1).view(np.uint8), x.reshape(-1).view(np.uint8)
    if a.size % 8 == 0:
        a, b = a.view(np.uint64), b.view(np.uint64)
    return all(
        np.array_equal(a[k : k + _CHUNK], b[k : k + _CHUNK]) for k in range(0, a.size, _CHUNK)
    )
