"""Elementary functions of float64: against mpmath over their domains, NumPy at the ends, as vector code."""

import math

import mpmath
import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features
from numba import njit

from loopax.numba_backend.runtime.elementary import FUNCTIONS

RNG = np.random.default_rng(20)
N = 500
WHOLE_LINE = RNG.normal(size=N) * np.exp(RNG.uniform(-30, 5, size=N))

EXACT = {
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "log1mexp": lambda x: mpmath.log1p(-mpmath.exp(x)),
}
POINTS = {
    "exp": [*RNG.uniform(-708, 709.7, N), *WHOLE_LINE],
    "expm1": [*RNG.uniform(-50, 709.7, N), *WHOLE_LINE],
    "log": [*np.exp(RNG.uniform(-744, 709, N)), *1 + 1e-3 * RNG.normal(size=N)],
    "log1p": [
        *np.exp(RNG.uniform(-700, 709, N)),
        *np.exp(RNG.uniform(-36, 0, N)) - 1,
        *1e-5 * WHOLE_LINE,
    ],
    "tanh": [*RNG.uniform(-25, 25, N), *WHOLE_LINE],
    "sigmoid": [*RNG.uniform(-700, 40, N), *WHOLE_LINE],
    "softplus": [*RNG.uniform(-700, 40, N), *WHOLE_LINE],
    "log1mexp": [*-np.exp(RNG.uniform(-30, 6, N)), -math.log(2)],
}
ULPS = {"exp": 1.0, "log": 1.0, "expm1": 2.0, "log1p": 2.0, "softplus": 2.0}  # 3 of the others
ENDS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -2.0, 1e308, -1e308, 5e-324, -5e-324]
    + [1e-310, 2.2e-308, 709.78, 709.79, 710.0, -708.5, -740.0, -745.1, -745.2, -746.0, 1e-17, 33.3]
)
# NumPy's, or what PyTensor computes in the place of a function that NumPy does not have.
AT_ENDS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "log1mexp": lambda x: np.where(
        x < -math.log(2), np.log1p(-np.exp(x)), np.log(-np.expm1(np.minimum(x, 1.0)))
    ),
}


def of_each(name):
    function = FUNCTIONS[name]

    @njit(error_model="numpy")
    def run(x, y):
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    return run


def values(name, x):
    y = np.empty_like(x)
    of_each(name)(x, y)
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_units_in_the_last_place(name):
    x = np.array(POINTS[name])
    with mpmath.workdps(50):
        for at, y in zip(x, values(name, x), strict=True):
            exact = EXACT[name](mpmath.mpf(float(at)))
            off = abs(mpmath.mpf(float(y)) - exact) / math.ulp(float(exact))
            assert off <= ULPS.get(name, 3.0), (at, y, float(exact))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ends(name):
    with np.errstate(all="ignore"):
        expected = AT_ENDS[name](ENDS)
    found = values(name, ENDS)
    np.testing.assert_allclose(found, expected, rtol=1e-15, atol=5e-324)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


@pytest.mark.skipif(
    not get_host_cpu_features().get("avx2"),
    reason="of two numbers at once LLVM makes no use for all",
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_are_vector_code(name):
    run = of_each(name)
    run(np.ones(3), np.ones(3))
    (code,) = run.inspect_llvm().values()
    assert any(f"fmul contract <{n} x double>" in code for n in (2, 4, 8, 16))
