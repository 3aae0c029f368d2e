"""The incomplete beta function, and its slope in the last argument, against SciPy."""

import jax
import numpy as np
import pytest
import scipy.special as sp
from scipy import stats

from loopax.numerics.special.incomplete_beta import betainc
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
