"""Native samplers draw what NumPy and SciPy draw from the same generator."""

import numpy as np
import pytest
from numba import njit
from scipy import stats

from loopax.numerics import native_samplers

CASES = {
    "bernoulli": ((0.3,), lambda rng, p: rng.binomial(1, p)),
    "cauchy": ((1.0, 2.0), lambda rng, a, s: stats.cauchy.rvs(a, s, random_state=rng)),
    "halfcauchy": ((1.0, 2.0), lambda rng, a, s: stats.halfcauchy.rvs(a, s, random_state=rng)),
    "gumbel": ((1.0, 2.0), lambda rng, a, s: stats.gumbel_r.rvs(a, s, random_state=rng)),
    "truncexpon": (
        (2.0, 1.0, 3.0),
        lambda rng, b, a, s: stats.truncexpon.rvs(b, a, s, random_state=rng),
    ),
    "gengamma": (
        (3.0, 2.0, 1.5),
        lambda rng, a, p, s: stats.gengamma.rvs(a / p, p, scale=s, random_state=rng),
    ),
    "invgamma": ((2.5, 1.5), lambda rng, a, s: 1 / rng.gamma(a, 1 / s)),
    "dirichlet": ((np.array([0.5, 2.0, 3.0]),), lambda rng, a: rng.dirichlet(a)),
    "dirichlet of small ones": ((np.array([0.05, 0.02]),), lambda rng, a: rng.dirichlet(a)),
    "permutation": ((np.arange(7.0),), lambda rng, x: rng.permutation(x)),
    "permutation of a number": ((7,), lambda rng, n: rng.permutation(n)),
    "normal_by_svd": (
        (np.array([1.0, -1.0]), np.array([[2.0, 0.3], [0.3, 1.0]])),
        lambda rng, mean, cov: rng.multivariate_normal(mean, cov, method="svd"),
    ),
    "normal_by_eigh": (
        (np.array([1.0, -1.0]), np.array([[2.0, 0.3], [0.3, 1.0]])),
        lambda rng, mean, cov: rng.multivariate_normal(mean, cov, method="eigh"),
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_the_same_draws_as_of_numpy_and_scipy(name):
    parameters, expected = CASES[name]
    draw = njit(getattr(native_samplers, name.partition(" ")[0]), error_model="numpy")
    ours, theirs = (np.random.default_rng(11) for _ in range(2))
    for _ in range(20):
        np.testing.assert_allclose(
            draw(ours, *parameters), expected(theirs, *parameters), rtol=1e-10
        )
    assert ours.random() == theirs.random()  # as many numbers were taken
