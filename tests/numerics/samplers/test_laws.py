"""Each sampler has the law that SciPy says it has, and a derivative that is that of the quantile."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from loopax.numerics.samplers import bounded, counts, domains, gammas, location_scale, vectors
from tests.numerics.samplers.laws import (
    CONTINUOUS,
    COUNT,
    DISCRETE,
    LIMIT,
    ROWS,
    assert_has_law,
    of_sets,
)

SAMPLERS = {
    "uniform": (bounded.uniform, domains.interval),
    "triangular": (bounded.triangular, domains.corners),
    "truncexpon": (bounded.truncated_exponential, domains.truncated_exponential),
    "vonmises": (bounded.wrapped_around, domains.von_mises),
    "wald": (bounded.wald, domains.wald),
    "halfnormal": (location_scale.half_normal, domains.location_scale),
    "halfcauchy": (location_scale.half_cauchy, domains.location_scale),
    "lognormal": (location_scale.log_normal, domains.log_normal),
    "weibull": (location_scale.weibull, domains.weibull),
    "gamma": (gammas.gamma, domains.shape_scale),
    "invgamma": (gammas.inverse_gamma, domains.shape_scale),
    "gengamma": (gammas.generalized_gamma, domains.generalized_gamma),
    "beta": (gammas.beta, domains.beta),
    "t": (gammas.student_t, domains.student_t),
    "bernoulli": (counts.bernoulli, domains.bernoulli),
    "poisson": (counts.poisson, domains.poisson),
    "binomial": (counts.binomial, domains.binomial),
    "negative_binomial": (counts.negative_binomial, domains.negative_binomial),
    "betabinom": (counts.beta_binomial, domains.beta_binomial),
    "geometric": (counts.geometric, domains.geometric),
    "hypergeometric": (counts.hypergeometric, domains.hypergeometric),
    "integers": (counts.integers, domains.integers),
    "categorical": (vectors.categorical, domains.categorical),
}
# JAX's own are right.
OF_JAX = {"normal", "gumbel", "laplace", "logistic", "cauchy", "exponential", "pareto"}


def parameters(name):
    """The sets of parameters of a row, each parameter as one array."""
    sets, _ = ROWS[name]
    dtype = "int64" if name == "integers" else "float64"
    return [jnp.asarray(np.stack(xs), dtype)[:, None] for xs in zip(*sets, strict=True)]


@cache
def all_draws():
    """COUNT draws for each set of each row, by one program."""
    shapes = {name: (len(ROWS[name][0]), COUNT) for name in SAMPLERS}

    def draw_all(key):
        keys = zip(SAMPLERS, jax.random.split(key, len(SAMPLERS)), strict=True)
        return {
            name: SAMPLERS[name][0](k, shapes[name], "int64", *parameters(name)) for name, k in keys
        }

    return {name: np.asarray(xs) for name, xs in jax.jit(draw_all)(jax.random.key(3)).items()}


def rows(laws):
    return of_sets({name: row for name, row in laws.items() if name in SAMPLERS})


def test_every_law_has_a_sampler_or_is_that_of_jax():
    assert SAMPLERS.keys() | OF_JAX == ROWS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), rows(CONTINUOUS))
def test_continuous(name, k):
    sets, law = CONTINUOUS[name]
    assert stats.kstest(all_draws()[name][k], law(*sets[k]).cdf).pvalue > LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), rows(DISCRETE))
def test_discrete(name, k):
    sets, law = DISCRETE[name]
    if name == "hypergeometric" and not any(sets[k]):
        assert not all_draws()[name][k].any()  # an empty urn, of which SciPy has no law
        return
    assert_has_law(all_draws()[name][k], law(*sets[k]))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_parameters_of_the_rows_are_in_the_domain_and_nan_is_not(name):
    domain = SAMPLERS[name][1]
    for condition, holds in domain(*parameters(name)).items():
        assert np.all(holds), condition
    if name != "integers":
        for k, conditions in enumerate(zip(*_with_nans(name, domain), strict=True)):
            assert not all(np.all(holds) for holds in conditions), f"NaN for parameter {k}"


def _with_nans(name, domain):
    """The conditions with a NaN in each of the parameters that any condition reads, one after the other."""
    given = parameters(name)
    read = [k for k in range(len(given)) if _reads(domain, given, k)]
    broken = [
        [jnp.full_like(x, jnp.nan) if j == k else x for j, x in enumerate(given)] for k in read
    ]
    return zip(*(domain(*xs).values() for xs in broken), strict=True)


def _reads(domain, given, k):
    jaxpr = jax.make_jaxpr(lambda *xs: list(domain(*xs).values()))(*given).jaxpr
    return any(jaxpr.invars[k] in eqn.invars for eqn in jaxpr.eqns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "at", "k"),
    [("gamma", (2.5, 1.5), 0), ("vonmises", (0.0, 2.0), 1), ("wald", (2.0, 3.0), 0)],
)
def test_the_derivative_of_a_draw_moves_it_along_its_quantile(name, at, k):
    """``dx / dp = -(dF / dp) / f``, by differences of SciPy's distribution function."""
    sampler, law = SAMPLERS[name][0], CONTINUOUS[name][1]
    key = jax.random.key(7)

    def one(*xs):
        return sampler(key, (), "float64", *map(jnp.asarray, xs))

    x, slopes = one(*at), jax.grad(one, tuple(range(len(at))))(*at)
    h = 1e-6
    ends = [law(*(p + sign * h * (j == k) for j, p in enumerate(at))).cdf(x) for sign in (1, -1)]
    expected = -(ends[0] - ends[1]) / (2 * h) / law(*at).pdf(x)
    np.testing.assert_allclose(slopes[k], expected, rtol=1e-5)
