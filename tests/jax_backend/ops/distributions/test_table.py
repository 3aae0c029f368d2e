"""Each distribution of PyTensor has in JAX the law that SciPy says it has.

The rows are those of tests/numerics/samplers/laws.py, by which the samplers themselves are tested. Here the
continuous ones are drawn by one program, and the discrete ones by another; all of them are traced.
"""

import inspect
from functools import cache
from itertools import permutations

import jax
import numpy as np
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
import pytest
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import random_generator_type
from scipy import stats

from loopax import jaxify
from loopax.jax_backend.ops.distributions.registry import families, has_sampler
from tests.numerics.samplers.laws import (
    CONTINUOUS,
    COUNT,
    DISCRETE,
    LIMIT,
    ROWS,
    assert_expected,
    assert_has_law,
    of_sets,
)

pytestmark = pytest.mark.one_stack

RNG = random_generator_type("rng")


def draw(distribution, *parameters, **options):
    """A draw from the generator `RNG`, as a variable."""
    return distribution(*parameters, rng=RNG, return_next_rng=True, **options)[1]


# Functions of pt.random that are one of the rows with other parameters; vectors, tested one by one below.
MADE_OF = {
    "chisquare": "gamma",
    "rayleigh": "gamma",
    "standard_normal": "normal",
    "nbinom": "negative_binomial",
}
VECTORS = {"dirichlet", "multinomial", "multivariate_normal", "choice", "permutation"}


def batch_of(name):
    """For each set of parameters, COUNT draws, as a variable."""
    sets, _ = ROWS[name]
    columns = [np.stack([np.asarray(x) for x in xs])[:, None] for xs in zip(*sets, strict=True)]
    options = {"scale": columns.pop()} if name == "gamma" else {}
    return draw(getattr(pt.random, name), *columns, size=(len(sets), COUNT), **options)


@cache
def all_draws():
    return jaxify([RNG], {name: batch_of(name) for name in ROWS})


@cache
def draws(*names):
    """One program for all: a compilation for each distribution would take twice the time."""
    actual = jax.jit(lambda key: {name: all_draws()(key)[name] for name in names})(
        jax.random.key(20)
    )
    return {name: np.asarray(xs) for name, xs in actual.items()}


def draws_of(name, drawn):
    return draws(*sorted({parameters["name"] for parameters in drawn}))[name]


def test_every_distribution_has_a_row():
    names = {*ROWS, *MADE_OF, *VECTORS}
    assert set(ptr.__all__) <= names, "a distribution of PyTensor without a test here"
    classes = {
        c for _, c in inspect.getmembers(ptr, inspect.isclass) if issubclass(c, RandomVariable)
    }
    assert classes - {RandomVariable, ptr.ScipyRandomVariable} == set(families())


def test_every_distribution_is_drawn_in_jax():
    ops = [
        getattr(pt.random, name) for name in {*ROWS, *VECTORS} - {"gamma", "choice", "permutation"}
    ]
    assert all(has_sampler(op) for op in ops)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "k"), of_sets(CONTINUOUS))
def test_continuous(name, k, drawn):
    sets, law = CONTINUOUS[name]
    assert stats.kstest(draws_of(name, drawn)[k], law(*sets[k]).cdf).pvalue > LIMIT


@pytest.mark.parametrize(("name", "k"), of_sets(DISCRETE))
def test_discrete(name, k, drawn):
    sets, law = DISCRETE[name]
    values = draws_of(name, drawn)[k]
    assert values.dtype == np.int64
    if name == "hypergeometric" and not any(sets[k]):
        assert not values.any()  # an empty urn, of which SciPy has no law
        return
    assert_has_law(values, law(*sets[k]))


def test_von_mises_around_another_mean():
    pairs = [(3.0, 0.3), (-40.0, 0.3), (3.0, 4.0), (-40.0, 4.0)]
    mus, kappas = np.array(pairs).T[:, :, None]
    drawn = jaxify([RNG], draw(pt.random.vonmises, mus, kappas, size=(4, COUNT)))
    for (mu, kappa), xs in zip(pairs, np.asarray(drawn(jax.random.key(4))), strict=True):
        assert (abs(xs) <= np.pi).all()
        away = (xs - mu + np.pi) % (2 * np.pi) - np.pi
        assert stats.kstest(away, stats.vonmises(kappa).cdf).pvalue > LIMIT


# -- vectors ---------------------------------------------------------------------------------------------


def test_dirichlet():
    alphas = np.array([[1.0, 2.0, 4.0], [0.05, 0.1, 0.3], [1.0, 0.0, 2.0]])
    drawn = jaxify([RNG], draw(pt.random.dirichlet, alphas[:, None], size=(3, COUNT)))
    xs = np.asarray(drawn(jax.random.key(5)))
    np.testing.assert_allclose(xs.sum(-1), 1)
    for alpha, rows in zip(alphas, xs, strict=True):
        for j in np.flatnonzero(alpha):
            law = stats.beta(alpha[j], alpha.sum() - alpha[j])
            assert stats.kstest(rows[:, j], law.cdf).pvalue > LIMIT
        covariance = np.diag(alpha / alpha.sum()) - np.outer(alpha, alpha) / alpha.sum() ** 2
        np.testing.assert_allclose(np.cov(rows.T), covariance / (alpha.sum() + 1), atol=0.01)
    assert not xs[2, :, 1].any()


COVARIANCE = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])


def test_multivariate_normal():
    mean = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 10.0]])
    covariances = np.stack([COVARIANCE, 4 * np.eye(3)])
    programs = [
        draw(
            pt.random.multivariate_normal,
            mean[:, None],
            covariances[:, None],
            size=(2, COUNT),
            method=m,
        )
        for m in ("cholesky", "svd", "eigh")
    ]
    for xs in jaxify([RNG], programs)(jax.random.key(6)):
        for rows, mu, covariance in zip(np.asarray(xs), mean, covariances, strict=True):
            white = np.linalg.solve(np.linalg.cholesky(covariance), (rows - mu).T)
            assert stats.kstest(white.ravel(), "norm").pvalue > LIMIT
            np.testing.assert_allclose(np.cov(white), np.eye(3), atol=0.1)


def test_multivariate_normal_of_a_singular_and_of_no_covariance():
    singular, none = np.outer([1.0, 2.0], [1.0, 2.0]), np.diag([1.0, -1.0])
    programs = [
        draw(pt.random.multivariate_normal, np.zeros(2), c, size=5, method=m)
        for c, m in [(singular, "svd"), (singular, "eigh"), (none, "eigh"), (none, "cholesky")]
    ]
    svd, eigh, *invalid = map(np.asarray, jaxify([RNG], programs)(jax.random.key(7)))
    np.testing.assert_allclose(svd[:, 1], 2 * svd[:, 0])
    np.testing.assert_allclose(eigh[:, 1], 2 * eigh[:, 0])
    assert np.isnan(invalid).any(axis=(1, 2)).all()


def test_multinomial():
    p = np.array([[0.2, 0.0, 0.5, 0.3], [1e-4, 0.9, 0.0999, 0.0]])
    n = np.array([[30], [10**6]])
    xs = np.asarray(
        jaxify([RNG], draw(pt.random.multinomial, n, p[:, None], size=(2, COUNT)))(
            jax.random.key(8)
        )
    )
    assert xs.dtype == np.int64
    np.testing.assert_array_equal(xs.sum(-1), np.broadcast_to(n, (2, COUNT)))
    for rows, trials, q in zip(xs, n[:, 0], p, strict=True):
        for j, q_j in enumerate(q):
            assert_has_law(rows[:, j], stats.binom(trials, q_j))
        covariance = trials * (np.diag(q) - np.outer(q, q))
        np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.08 * trials)


def test_categorical_of_one_distribution_and_of_many():
    """The two are searched in different ways. An outcome of probability 0 does not occur."""
    p = np.array([0.0, 0.25, 0.0, 0.7, 0.05, 0.0])
    programs = [
        draw(pt.random.categorical, p, size=(COUNT,)),
        draw(pt.random.categorical, np.tile(p, (COUNT, 1))),
        draw(pt.random.categorical, p.astype("float32"), size=(COUNT,)),
        draw(pt.random.choice, pt.arange(6), p=p, size=(COUNT,)),
    ]
    for xs in jaxify([RNG], programs)(jax.random.key(9)):
        assert_expected(np.bincount(xs, minlength=6)[p > 0], COUNT * p[p > 0])
        assert not np.bincount(xs, minlength=6)[p == 0].any()


# -- orders ----------------------------------------------------------------------------------------------

ORDERS = [*permutations(range(4))]


def numbered(rows, orders):
    """How often each of ``orders`` is among ``rows``."""
    place = {order: k for k, order in enumerate(orders)}
    return np.bincount([place[tuple(r)] for r in np.asarray(rows).tolist()], minlength=len(orders))


def test_permutations_are_uniform():
    matrix = np.arange(4.0)[:, None] + [0, 10]
    whole = draw(pt.random.permutation, np.tile(np.arange(4), (COUNT, 1)))
    # A scalar or vector is one draw; a batch of them comes of the signature.
    op = ptr.PermutationRV(signature="(x)->(x)", dtype="int64")
    batch = op(np.tile(np.arange(4), (COUNT, 1)), rng=RNG, return_next_rng=True)[1]
    counts = ptr.PermutationRV(signature="()->(x)", dtype="int64")
    of_counts = counts(np.full(COUNT, 4), rng=RNG, return_next_rng=True)[1]
    rows = draw(pt.random.permutation, matrix)
    batch, of_counts, whole, rows = jaxify([RNG], [batch, of_counts, whole, rows])(
        jax.random.key(10)
    )
    assert_expected(numbered(batch, ORDERS), np.full(24, COUNT / 24))
    assert_expected(numbered(of_counts, ORDERS), np.full(24, COUNT / 24))
    assert sorted(np.asarray(rows)[:, 0]) == [0, 1, 2, 3]
    np.testing.assert_array_equal(np.asarray(rows)[:, 1], np.asarray(rows)[:, 0] + 10)
    assert whole.shape == (COUNT, 4)  # of the rows, which are all alike


PAIRS = [*permutations(range(4), 2)]


def choices(signature, *parameters, dtype="int64"):
    """COUNT choices without replacement, as one batch."""
    op = ptr.ChoiceWithoutReplacement(signature=signature, dtype=dtype)
    return op(*parameters, rng=RNG, return_next_rng=True)[1]


def test_choices_without_replacement():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    rows, two = np.tile(np.arange(4), (COUNT, 1)), np.array([2])
    programs = [
        choices("(a),(1)->(s)", rows, two),
        choices("(),(1)->(s)", np.full(COUNT, 4), two),
        choices("(a),(a),(1)->(s)", rows, p, two),
        choices("(),(a),(1)->(s)", np.full(COUNT, 4), p, two),
    ]
    evenly, counted, *weighted = jaxify([RNG], programs)(jax.random.key(11))
    for actual in (evenly, counted):
        assert_expected(numbered(actual, PAIRS), np.full(12, COUNT / 12))
    successive = np.array([p[i] * p[j] / (1 - p[i]) for i, j in PAIRS])
    for actual in weighted:
        assert_expected(numbered(actual, PAIRS), COUNT * successive)


def test_choices_among_unequal_numbers_of_items():
    sizes = np.array([3, 5])
    actual = np.asarray(
        jaxify([RNG], choices("(),(1)->(s)", np.repeat(sizes, COUNT), np.array([1])))(
            jax.random.key(12)
        )
    )[:, 0]
    for n, xs in zip(sizes, np.split(actual, 2), strict=True):
        assert_expected(np.bincount(xs, minlength=5)[:n], np.full(n, COUNT / n))
        assert xs.max() == n - 1


def test_choice_of_rows_of_a_matrix():
    a = np.arange(10.0).reshape(5, 2)
    programs = [
        draw(pt.random.choice, a, size=(3,), replace=False),
        draw(pt.random.choice, a, size=(2, 2), replace=False, p=[0.5, 0.25, 0.0, 0.15, 0.1]),
        draw(pt.random.choice, a, size=(2, 3)),
    ]
    one, two, three = jaxify([RNG], programs)(jax.random.key(13))
    for actual in (one, two, three):
        np.testing.assert_array_equal(actual[..., 1], actual[..., 0] + 1)
    assert np.unique(one[:, 0]).size == 3 and np.unique(two[..., 0]).size == 4
    assert 4.0 not in np.asarray(two)
