"""Distributions with sets of parameters, edges of their ranges among them, and what SciPy says of each.

The limit is a probability of one in ten thousand for a right sampler to fail; keys are fixed, so a test
that passes always passes.
"""

import numpy as np
import pytest
from scipy import stats

COUNT = 4000
LIMIT = 1e-4


def wrapped(mu, kappa):
    """The von Mises law on [-pi, pi], where SciPy's is on an interval around its mean."""
    if kappa == 0:
        return stats.uniform(-np.pi, 2 * np.pi)
    assert mu == 0
    return stats.vonmises(kappa)


# name in pt.random -> (sets of parameters, the law of one set)
CONTINUOUS = {
    "normal": ([(0.3, 2.0), (-100.0, 1e-3)], stats.norm),
    "uniform": ([(-1.0, 2.0), (5.0, 5.001)], lambda a, b: stats.uniform(a, b - a)),
    "triangular": (
        [(-1.0, 0.5, 2.0), (0.0, 0.0, 1.0), (0.0, 3.0, 3.0)],
        lambda a, m, b: stats.triang((m - a) / (b - a), a, b - a),
    ),
    "beta": ([(2.0, 5.0), (0.1, 3.0), (200.0, 0.5)], stats.beta),
    "halfnormal": ([(0.0, 1.0), (3.0, 0.2)], stats.halfnorm),
    "lognormal": ([(0.0, 1.0), (-3.0, 0.2)], lambda m, s: stats.lognorm(s, scale=np.exp(m))),
    "gamma": ([(0.05, 2.0), (3.0, 0.5), (1e6, 1.0)], lambda a, s: stats.gamma(a, scale=s)),
    "invgamma": ([(0.7, 2.0), (30.0, 5.0)], lambda a, s: stats.invgamma(a, scale=s)),
    "gengamma": (
        [(1.0, 2.0, 3.0), (4.0, 0.5, 1.0)],
        lambda a, p, s: stats.gengamma(a / p, p, scale=s),
    ),
    "pareto": ([(3.0, 2.0), (0.4, 1.0)], lambda b, s: stats.pareto(b, scale=s)),
    "gumbel": ([(0.0, 1.0), (2.0, 5.0)], stats.gumbel_r),
    "laplace": ([(0.0, 1.0), (2.0, 5.0)], stats.laplace),
    "logistic": ([(0.0, 1.0), (2.0, 5.0)], stats.logistic),
    "cauchy": ([(0.0, 1.0), (2.0, 5.0)], stats.cauchy),
    "halfcauchy": ([(0.0, 1.0), (2.0, 5.0)], stats.halfcauchy),
    "exponential": ([(1.0,), (1e-3,)], lambda s: stats.expon(scale=s)),
    "weibull": ([(2.0,), (0.3,)], stats.weibull_min),
    "truncexpon": ([(2.0, 1.0, 3.0), (50.0, 0.0, 1.0), (1e-6, 0.0, 1.0)], stats.truncexpon),
    "t": ([(3.0, 0.0, 1.0), (0.5, 1.0, 2.0), (1e8, 0.0, 1.0)], stats.t),
    "wald": ([(1.0, 2.0), (100.0, 0.1), (1e-3, 50.0)], lambda m, s: stats.invgauss(m / s, scale=s)),
    "vonmises": ([(0.0, 0.5), (2.0, 0.0), (0.0, 1e-9), (0.0, 5.0), (0.0, 1e7)], wrapped),
}
DISCRETE = {
    "bernoulli": ([(0.3,), (0.0,), (1.0,)], stats.bernoulli),
    "poisson": ([(0.0,), (0.7,), (9.99,), (10.0,), (300.0,), (1e7,)], stats.poisson),
    "binomial": (
        [
            (0, 0.3),
            (5, 0.0),
            (5, 1.0),
            (10, 0.5),
            (20, 0.5),
            (10**4, 0.998),
            (10**6, 0.3),
            (10**9, 1e-9),
        ],
        stats.binom,
    ),
    "negative_binomial": ([(0.3, 0.2), (10.0, 0.5), (3.0, 1.0), (1e3, 1e-3)], stats.nbinom),
    "betabinom": ([(10, 1.0, 2.0), (100, 0.2, 0.1), (0, 1.0, 1.0)], stats.betabinom),
    "geometric": ([(0.3,), (1.0,), (1e-6,)], stats.geom),
    "hypergeometric": (
        [(10, 20, 5), (20, 10, 25), (500, 300, 100), (0, 5, 3), (5, 0, 3), (10, 10, 20)]
        + [(7, 3, 0), (10**8, 10**5, 10**7), (0, 0, 0)],
        lambda good, bad, n: stats.hypergeom(good + bad, good, n),
    ),
    "integers": ([(0, 10), (-3, -2), (-(2**40), 2**40)], stats.randint),
    "categorical": (
        [((0.2, 0.5, 0.3),), ((0.0, 1.0, 0.0),)],
        lambda p: stats.rv_discrete(values=(range(len(p)), p)),
    ),
}
ROWS = {**CONTINUOUS, **DISCRETE}


def of_sets(rows):
    return [
        pytest.param(name, k, id=f"{name}{sets[k]}")
        for name, (sets, _) in rows.items()
        for k in range(len(sets))
    ]


def assert_has_law(xs, law):
    """Chi-square, in cells of equal probability or nearly so."""
    with np.errstate(all="ignore"):
        edges = np.unique(law.ppf(np.linspace(0, 1, 31)[1:-1]))
        expected = len(xs) * np.diff([0.0, *law.cdf(edges), 1.0])
    actual = np.bincount(np.searchsorted(edges, xs), minlength=len(expected))
    assert_expected(actual, expected)


def assert_expected(actual, expected):
    """Chi-square. Cells where little is expected are taken together; where nothing is, there is nothing."""
    actual, expected = np.ravel(actual), np.ravel(expected)
    assert not actual[expected == 0].any()
    few = expected < 5
    actual = np.array([*actual[~few], actual[few].sum()])
    expected = np.array([*expected[~few], expected[few].sum()])
    actual, expected = actual[expected > 0], expected[expected > 0]
    if len(actual) > 1:
        assert stats.chisquare(actual, expected * (actual.sum() / expected.sum())).pvalue > LIMIT
