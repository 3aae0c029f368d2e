"""The incomplete beta function, and its slope in the last argument, against SciPy."""

import jax
import mpmath
import numpy as np
import pytest
import scipy.special as sp
from scipy import stats

from loopax.numerics.special.incomplete_beta import betainc
from loopax.numerics.special.inverses import betaincinv
from tests.numerics.special.closeness import close


@pytest.fixture(scope="module")
def grid():
    parameters = [0.02, 0.5, 3.0, 40.0, 3000.0]
    a, b, x = (m.ravel() for m in np.meshgrid(parameters, parameters, [0.0, 1e-9, 0.2, 0.9, 1.0]))
    return a, b, x


def test_values(grid):
    close(jax.jit(betainc)(*grid), sp.betainc(*grid), rtol=1e-9, atol=1e-300)


def test_the_slope_is_the_density(grid):
    inside = (grid[2] > 0) & (grid[2] < 1)
    a, b, x = (v[inside] for v in grid)
    slope = jax.jit(jax.grad(lambda x: betainc(a, b, x).sum()))(x)
    close(slope, stats.beta(a, b).pdf(x), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", ["betainc", "betaincinv"])
def test_the_ends(name):
    """Of parameters and arguments: an infinite parameter puts all mass at one end."""
    f = {"betainc": betainc, "betaincinv": betaincinv}[name]
    parameters = [0.0, 0.5, 1.5, np.inf, np.nan, -1.0]
    ends = np.meshgrid(parameters, parameters, [0.0, 0.5, 1.0, np.nan, -0.1, 1.1])
    a, b, x = (m.ravel() for m in ends)
    np.testing.assert_allclose(jax.jit(f)(a, b, x), getattr(sp, name)(a, b, x), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "largest", "atol"),
    [("float64", 1e6, 2e-11), ("float64", 1e8, 2e-9), ("float32", 1e4, 5e-4)],
)
def test_large_parameters(dtype, largest, atol):
    """Around the mean, where it is neither 0 nor 1; JAX has 0.2 for ``betainc(1e8, 1e8, 0.5)``."""
    rows = []
    for a in (30.0, 999.0, 1e3, 1e4, largest):
        for b in (a, a / 3, 2.0, 0.5):
            mean, spread = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
            rows += [(a, b, x) for x in mean + spread * np.array([-2, -0.3, 0, 0.7]) if x < 1]
    a, b, x = np.array(rows).astype(dtype).T
    for args in ((a, b, x), (b, a, 1 - x)):
        actual = jax.jit(betainc)(*args)
        assert actual.dtype == dtype
        expected = sp.betainc(*(v.astype("float64") for v in args))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


@pytest.mark.slow
def test_slopes_at_large_parameters():
    point = 2e4, 0.5, 0.9999
    with mpmath.workdps(40):
        exact = [mpmath.mpf(x) for x in point]
        slopes = []
        for k in range(2):
            up, down = list(exact), list(exact)
            up[k], down[k] = exact[k] + 1e-12, exact[k] - 1e-12
            both = (mpmath.betainc(a, b, 0, x, regularized=True) for a, b, x in (up, down))
            slopes.append(float((next(both) - next(both)) / 2e-12))
    close(jax.jit(jax.grad(betainc, (0, 1)))(*point), slopes, rtol=1e-9)
