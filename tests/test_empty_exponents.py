"""Sums of exponents, and what is divided by them, of no elements."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE

M = pt.dmatrix("m")
RESULTS = {
    "logsumexp": pt.logsumexp(M, axis=0),
    "logsumexp of rows": pt.logsumexp(M, axis=1),
    "by hand": pt.log(pt.exp(M).sum()),
    "logaddexp": pt.logaddexp(M[:, 0], M[:, 1]),
    "softmax": pt.special.softmax(M, axis=1),
    "softmax of all": pt.special.softmax(M, axis=None),
}
SHAPES = [(0, 3), (3, 0), (2, 3)]


@pytest.mark.parametrize("options", [{"backend": NATIVE}, {"loops": "xla"}], ids=["native", "xla"])
@pytest.mark.parametrize("name", RESULTS)
def test_values_and_gradients(name, options):
    out = RESULTS[name]
    expected = pytensor.function([M], out, mode=FAST_COMPILE)
    f, cost = jaxify([M], out, **options), jaxify([M], (out * 2).sum(), **options)
    for shape in SHAPES:
        if name == "logaddexp" and shape[1] == 0:
            continue
        x = np.arange(6.0).reshape(2, 3) if shape == (2, 3) else np.zeros(shape)
        if "softmax" in name and not x.size:
            np.testing.assert_array_equal(f(x), np.zeros(shape))
        else:
            np.testing.assert_allclose(f(x), expected(x), rtol=1e-12)
        if "loops" in options:  # Python divides by the zero that native code has as an infinity
            gradient = loopax.grad(cost)(x)
            assert gradient.shape == shape and np.isfinite(gradient).all()


def test_a_native_gradient():
    gradient = loopax.grad(jaxify([M], pt.logsumexp(M), backend="numba"))
    assert gradient(np.zeros((3, 0))).shape == (3, 0)
    np.testing.assert_allclose(gradient(np.zeros((1, 2))), [[0.5, 0.5]])


@pytest.mark.parametrize("options", [{"backend": NATIVE}, {"loops": "xla"}], ids=["native", "xla"])
def test_the_maximum_of_nothing_that_a_program_asks_for_is_an_error(options):
    f = jaxify([M], pt.max(M), **options)
    with pytest.raises(ValueError, match="zero-size"):
        f(np.zeros((0, 3)))
