"""New arrays of emitted programs are those of ``np.empty``."""

import resource

import numpy as np
import pytest
from numba import njit

from loopax.numba_backend.runtime.memory import empty


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.bool_, np.int8, np.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)])
def test_shapes_and_dtypes(shape, dtype):
    @njit
    def made(shape):
        return empty(shape, dtype)

    actual = made(shape)
    assert actual.shape == shape and actual.dtype == dtype
    assert actual.flags.c_contiguous and actual.flags.writeable and actual.flags.aligned
    actual[...] = 1
    assert actual.sum() == np.prod(shape)


@njit
def of_lengths(n, m):
    return empty((n, m), np.float64)


@pytest.mark.parametrize(
    "lengths, error, match",
    [
        ((-1, 2), ValueError, "negative dimensions are not allowed"),
        ((2**40, 2**40), ValueError, "array is too big"),
        ((2**61, 1), ValueError, "array is too big"),
        ((2**52, 1), MemoryError, None),
    ],
)
def test_what_cannot_be_made(lengths, error, match):
    with pytest.raises(error, match=match):
        of_lengths(*lengths)


def test_what_is_dropped_is_freed():
    @njit
    def many(n):
        total = 0.0
        for k in range(n):
            a = empty((2**17,), np.float64)
            a[:] = k
            total += a[k]
        return total

    many(3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert many(500) == sum(range(500))  # of 500 MB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
