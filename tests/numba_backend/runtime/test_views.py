"""Views of arrays with other axes: no copy, and the array lives as long as its view."""

import numba
import numpy as np
import pytest

from loopax.base.compiling.pipeline import EmittedCode
from loopax.numba_backend.runtime.views import view_of_run


@numba.njit
def block(a, start, rows):
    return view_of_run(a, start, (rows, 2))


@numba.njit
def block_of_known_shape(a, start, rows):
    return view_of_run(a, start, (3, 2))


@numba.njit
def block_of_a_local(n):
    a = np.arange(n)
    return view_of_run(a, 4, (3, 2))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("function", [block, block_of_known_shape])
@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 2, 3)])
@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_elements_that_follow_one_another(function, shape, dtype):
    a = np.arange(12, dtype=dtype).reshape(shape)
    view = function(a, 4, 3)
    np.testing.assert_array_equal(view, a.reshape(-1)[4:10].reshape(3, 2), strict=True)
    np.testing.assert_array_equal(view, function.py_func(a, 4, 3), strict=True)
    a.reshape(-1)[5] = 77
    assert view[0, 1] == 77


def test_no_elements():
    assert block(np.arange(12.0), 12, 0).shape == (0, 2)


def test_a_view_keeps_its_array():
    views = [block_of_a_local(12) for _ in range(5)]
    assert all((view == np.arange(4, 10).reshape(3, 2)).all() for view in views)


def test_an_array_that_must_not_be_written_to():
    a = np.arange(12.0)
    a.flags.writeable = False
    np.testing.assert_array_equal(block(a, 0, 6), a.reshape(6, 2), strict=True)


@numba.njit(pipeline_class=EmittedCode)
def last_number(a, n):
    view = view_of_run(a, n, ())
    for k in range(n):
        view = view_of_run(a, k, ())
    return view


def test_a_view_without_axes():
    a = np.arange(6.0).reshape(2, 3)
    for n in (0, 1, 4):
        view = last_number(a, n)
        assert view.shape == () and view == max(n - 1, 0)
