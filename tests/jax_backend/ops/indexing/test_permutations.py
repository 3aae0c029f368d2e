"""Rows permuted, and put back, in both backends against PyTensor: values, gradients, what does not fit."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.basic import inverse_permutation, permute_row_elements

from loopax import jaxify
from tests.support.compare import FAST_COMPILE

X, ORDER = pt.dmatrix("x"), pt.lmatrix("order")
XS = np.arange(6.0).reshape(2, 3) + 0.5
ORDERS = np.array([[2, 0, 1], [1, 2, 0]])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", "numba"])
# Native code has no conversion of the op: it runs in Python, and says so.
@pytest.mark.filterwarnings("ignore:[\\s\\S]*PermuteRowElements:UserWarning")
def test_permutations_and_their_inverse(backend):
    """PyTensor's pullback of the op, which JAX had no conversion of, failed on integers."""
    permuted = [permute_row_elements(X, ORDER), permute_row_elements(X, ORDER[0], inverse=True)]
    weights = pt.arange(6.0).reshape((2, 3))
    slopes = [pytensor.grad((p**2 * weights).sum(), X) for p in permuted]
    outputs = [inverse_permutation(ORDER), inverse_permutation(ORDER[1]), *permuted, *slopes]
    expected = pytensor.function([X, ORDER], outputs, mode=FAST_COMPILE)(XS, ORDERS)
    f = jaxify([X, ORDER], outputs, backend=backend)
    for actual, e in zip(f(XS, ORDERS), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(actual), e, strict=True)
    if backend == "jax":
        weighted = jaxify([X, ORDER], (permuted[0] ** 2 * weights).sum())
        np.testing.assert_allclose(jax.grad(weighted)(XS, ORDERS), expected[-2], rtol=1e-12)


def test_rows_of_another_length_are_an_error():
    f = jaxify([X, ORDER], permute_row_elements(X, ORDER))
    with pytest.raises(ValueError, match="permutes rows of the shape"):
        f(XS, ORDERS[:, :2])


def test_what_is_no_permutation_gives_no_number():
    f = jaxify([X, ORDER], permute_row_elements(X, ORDER, inverse=True))
    assert np.isnan(f(XS, np.zeros_like(ORDERS))).sum() == 4
