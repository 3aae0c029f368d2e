"""Reshaped arrays in native code: lengths of arrays, lengths that may be -1, and those that do not fit."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from tests.support.compare import FAST_COMPILE

X, N = pt.dtensor3("x"), pt.lscalar("n")
ARRAY = np.arange(24.0).reshape(2, 3, 4)
SHAPES = {
    "one axis of two": (X.shape[0], X.shape[1] * X.shape[2]),
    "two axes turned": (X.shape[2], X.shape[0] * X.shape[1]),
    "one of all": (X.size,),
    "what is left": (X.shape[2], -1),
    "a number": (N, X.size // N),
    "a number and what is left": (N, -1),
    "a length and 1": (X.shape[0], 1, X.shape[1] * X.shape[2]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "make",
    [
        lambda x, s: x.reshape(s),
        lambda x, s: x.transpose(2, 0, 1).reshape(s),
        lambda x, s: (2 * x).reshape(s),
    ],
    ids=["an input", "transposed", "computed"],
)
def test_values(make, name):
    out = make(X, SHAPES[name])
    f = jaxify([X, N], [out, out * 2], backend="numba")
    want = pytensor.function([X, N], out, mode=FAST_COMPILE, on_unused_input="ignore")(ARRAY, 4)
    given = ARRAY.copy()
    actual, doubled = f(given, 4)
    np.testing.assert_array_equal(actual, want)
    np.testing.assert_array_equal(doubled, 2 * want)
    actual[...] = -1.0  # what is returned is no view of an argument
    np.testing.assert_array_equal(given, ARRAY)


def test_an_argument_is_viewed():
    f = jaxify([X], X.reshape((X.shape[2], X.shape[0] * X.shape[1])) * 2, backend="numba")
    f(ARRAY)
    assert (
        f.source.count(".reshape(") == 1 and "%" not in f.source
    )  # nothing is divided by a length


def test_what_is_written_to_is_no_view_of_what_is_read_again():
    flat = X.reshape((X.size,))
    out = [pt.set_subtensor(flat[0], 9.0), flat.sum(), X.sum(), pt.set_subtensor(X[0, 0, 1], 5.0)]
    f = jaxify([X], out, backend="numba")
    want = pytensor.function([X], out, mode=FAST_COMPILE)(ARRAY)
    for got, right in zip(f(ARRAY), want, strict=True):
        np.testing.assert_array_equal(got, right)


def test_strided_arguments():
    f = jaxify([X], X.reshape((X.shape[0], X.shape[1] * X.shape[2])), backend="numba")
    for x in (ARRAY[:, ::2], ARRAY[::-1], ARRAY.transpose(2, 0, 1), np.asfortranarray(ARRAY)):
        np.testing.assert_array_equal(f(x), x.reshape(x.shape[0], -1))


def test_in_a_loop():
    step = lambda s: (s.reshape((s.shape[1], s.shape[0])) + 1.0).reshape(s.shape)  # noqa: E731
    start = pt.dmatrix("start")
    out = pytensor.scan(step, outputs_info=start, n_steps=3, return_updates=False)
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(jaxify([start], out, backend="numba")(x)[-1], x + 3)


def test_sizes_that_differ():
    f = jaxify([X, N], X.reshape((N, X.shape[2])), backend="numba")
    assert f(ARRAY, 6).shape == (6, 4)
    with pytest.raises(ValueError, match="reshape"):
        f(ARRAY, 5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("axes", [[[1, 2], [1, 2]], [[0, 1], [0, 1]]])
def test_products_over_two_axes(axes):
    f = jaxify([X], pt.tensordot(X, X, axes=axes), backend="numba")
    np.testing.assert_allclose(f(ARRAY), np.tensordot(ARRAY, ARRAY, axes=axes))
