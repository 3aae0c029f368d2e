"""`NumbaFunction.compiled`: the native function, called by other native code."""

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt

from loopax import jaxify


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
