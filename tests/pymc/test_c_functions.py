"""The C functions that nutpie calls: what they write and return. nutpie itself is not needed."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from numba import cfunc, njit, types

pytest.importorskip("pymc")

from loopax.pymc.c_functions import expand_function, logp_function

N = 3
DOUBLES = types.CPointer(types.double)
LOGP = types.int64(types.uint64, DOUBLES, DOUBLES, DOUBLES, types.voidptr)
EXPAND = types.int64(types.uint64, types.uint64, DOUBLES, DOUBLES, types.voidptr)
USER_DATA = np.zeros(1)


def extraction(inner, shared, keys, dtype):
    return njit(lambda x, data: inner(x))


NUTPIE = SimpleNamespace(make_extraction_fn=extraction)


def compiled(function, signature, n, of):
    made, actual = function(NUTPIE, lambda *args: (None, signature))(*n, of, USER_DATA, [], {})
    assert actual is signature
    return cfunc(signature)(made)


@njit
def log_density(x):
    if x[0] > 10:
        raise ValueError("x is large")
    return np.asarray(-(x**2).sum()), -2 * x / (1.0 if x[0] < 5 else 0.0)


@pytest.fixture(scope="module")
def logp():
    return compiled(logp_function, LOGP, [N], log_density).ctypes


def pointer(x):
    return x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("first", "wanted"), [(1.0, 0), (11.0, 1), (6.0, 3), (-1e200, 4), (np.nan, 3)]
)
def test_a_log_density(logp, first, wanted):
    x, slopes, value = np.array([first, 2.0, 3.0]), np.zeros(N), np.zeros(1)
    with np.errstate(all="ignore"):
        assert logp(N, pointer(x), pointer(slopes), pointer(value), None) == wanted
    if wanted in (0, 4):
        np.testing.assert_array_equal(slopes, -2 * x)
        np.testing.assert_array_equal(value, [-(x @ x)] if wanted == 0 else [-np.inf])


def test_a_log_density_of_another_length(logp):
    x = np.zeros(4)
    assert logp(4, pointer(x), pointer(x), pointer(x), None) == -1


def test_what_is_stored_of_a_draw():
    @njit
    def twice(x):
        if x[0] < 0:
            raise ValueError("x is negative")
        return (np.concatenate((x, 2 * x)),)

    expand = compiled(expand_function, EXPAND, [N, 2 * N], twice).ctypes
    x, out = np.arange(3.0), np.zeros(6)
    assert expand(N, 2 * N, pointer(x), pointer(out), None) == 0
    np.testing.assert_array_equal(out, [0, 1, 2, 0, 2, 4])
    assert expand(N, N, pointer(x), pointer(out), None) == -1
    assert expand(N, 2 * N, pointer(x - 1), pointer(out), None) == -2
