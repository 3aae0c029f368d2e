"""`NumbaFunction.compiled`: the native function, called by other native code."""

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from loopax.numba_backend.callable.array_function import called_natively


@pytest.mark.slow
def test_native_code_calls_it():
    x, k = pt.dmatrix("x"), pt.lscalar("k")
    f = jaxify([x, k], (x.sum(0) * k, k + 1), backend="numba")
    compiled = f.compiled

    @numba.njit
    def twice(x, k):
        sums, k = compiled(x, k)
        return compiled(x * sums, k)

    rows = np.arange(6.0).reshape(2, 3)
    sums, k = twice(rows, np.array(2))
    expected = f(rows * f(rows, 2)[0], 3)
    np.testing.assert_array_equal(sums, expected[0])
    assert k == expected[1] == 4 and f.compiled is compiled
    # Any layout goes in, and what comes out is new.
    np.testing.assert_array_equal(compiled(rows.T, np.array(1))[0], rows.sum(1))


def test_shared_variables_are_arguments_and_next_values_results():
    x, total = pt.dvector("x"), pytensor.shared(np.zeros(2), name="total")
    compiled = jaxify([x], x.sum(), updates={total: total + x}, backend="numba").compiled
    value, following = compiled(np.ones(2), np.array([1.0, 2.0]))
    assert value == 2.0
    np.testing.assert_array_equal(following, [2.0, 3.0])


def test_for_native_code_alone_it_has_no_wrappers():
    x = pt.dvector("x")
    compiled = jaxify([x], {"value": pt.exp(x).sum()}, backend="numba").compiled
    inner = called_natively(compiled)
    assert numba.njit(lambda rows: inner(rows)[0].item())(np.zeros(3)) == 3.0
    (code,) = inner.overloads.values()
    assert not [f for f in code.library.get_defined_functions() if "cpython" in f.name]
    # On disk it is another function: one with wrappers may be called from Python.
    assert inner._cache._key != compiled._cache._key
    other = numba.njit(lambda x: x + 1)
    assert called_natively(other) is other
