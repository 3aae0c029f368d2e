"""``poly_gamma`` beside SciPy's."""

import numba
import numpy as np
import pytest
import scipy.special

from loopax.numerics.poly_gamma import poly_gamma

RNG = np.random.default_rng(0)
ENDS = [0.0, -1.0, -3.0, np.nan, np.inf, -np.inf, 1e9, 1e-300]
POINTS = np.concatenate([RNG.uniform(1e-3, 30, 500), RNG.uniform(-8, 0, 100), ENDS])


@numba.njit
def called(n, points):  # native code alone calls such a function
    return np.array([poly_gamma(n, x) for x in points])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 50, 170, -1])
def test_values(n):
    actual = called(float(n), POINTS)
    with np.errstate(all="ignore"):
        expected = scipy.special.polygamma(n, POINTS)
    # Of order 0 it is psi, which has its own test, and near its zeros another error.
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=0 if n else 1e-12)
