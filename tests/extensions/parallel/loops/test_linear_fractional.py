"""Covariances of Kalman filters, and other linear-fractional states, against the steps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify, kalman_filter, scan
from loopax.base.upstream.jax import inner_jaxprs
from tests.support.compare import assert_trees_close

K, P, T = 2, 1, 40
RNG = np.random.default_rng(0)
f, q, h, r = (pt.dmatrix(name) for name in "fqhr")
y = pt.dmatrix("y")
MODEL = [f, q, h, r]
VALUES = [
    np.array([[0.9, 0.2], [-0.1, 0.7]]),
    np.array([[0.5, 0.1], [0.1, 0.2]]),
    np.array([[1.0, 0.3]]),
    np.array([[0.4]]),
]
SEEN = RNG.normal(size=(T, P))
START = np.zeros(K), np.array([[1.0, 0.2], [0.2, 0.5]]), 0.0
EYE = np.eye(K)


def textbook(carry, row):
    """Predict, then update by the gain."""
    mean, covariance, total = carry
    mean, covariance = f @ mean, f @ covariance @ f.T + q
    error, spread = row - h @ mean, h @ covariance @ h.T + r
    gain = covariance @ h.T @ pt.linalg.inv(spread)
    density = -0.5 * (error @ pt.linalg.solve(spread, error) + pt.log(pt.linalg.det(spread)))
    mean = mean + gain @ error
    return (mean, (EYE - gain @ h) @ covariance, total + density), mean


def of_predictions(carry, row):
    """Update, then predict; the gain by a system."""
    mean, covariance, total = carry
    error, spread = row - h @ mean, h @ covariance @ h.T + r
    gain = pt.linalg.solve(spread, h @ covariance, assume_a="pos").T
    mean, covariance = mean + gain @ error, covariance - gain @ spread @ gain.T
    return (f @ mean, f @ covariance @ f.T + q, total + error.sum()), covariance


def joseph(carry, row):
    """Joseph's form, by a Cholesky factor, symmetrized; a row of nan is not observed."""
    mean, covariance, total = carry
    mean, covariance = f @ mean, f @ covariance @ f.T + q
    error, spread = row - h @ mean, h @ covariance @ h.T + r
    root = pt.linalg.cholesky(spread)
    gain = pt.linalg.cho_solve((root, True), h @ covariance, b_ndim=2).T
    kept = EYE - gain @ h
    updated = kept @ covariance @ kept.T + gain @ r @ gain.T
    is_seen = pt.all(pt.eq(row, row))
    covariance = pt.switch(is_seen, 0.5 * (updated + updated.T), covariance)
    mean = pt.switch(is_seen, mean + gain @ error, mean)
    return (mean, covariance, total - pt.switch(is_seen, pt.log(root[0, 0]), 0.0)), mean


def gapped():
    rows = SEEN.copy()
    rows[[3, 4, 20]] = np.nan
    return rows


FILTERS = {"textbook": textbook, "predictions": of_predictions, "Joseph's": joseph}


def both(step, init, inputs, xs=None, **options):
    outputs = scan(step, init, xs, **options)
    return tuple(jaxify(inputs, outputs, parallel=form) for form in (True, False))


def compare(parallel, plain, *args, rtol=1e-11):
    assert_trees_close(parallel(*args), plain(*args), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.sampled(1)
def test_filter_that_a_user_writes(name, reverse):
    parallel, plain = both(FILTERS[name], START, [y, *MODEL], y, reverse=reverse)
    compare(parallel, plain, gapped() if name == "Joseph's" else SEEN, *VALUES)
    (remark,) = parallel.remarks
    assert f"{T} steps, in parallel: state 1 linear-fractional, {K} x {K}, state 0 an" in remark
    assert "one by one" not in remark


@pytest.mark.slow
@pytest.mark.parametrize("name", FILTERS)
def test_derivatives_are_those_of_the_steps(name):
    graphs = both(FILTERS[name], START, [y, *MODEL], y)

    def total(g):
        return lambda *args: sum(jnp.sin(x).sum() for x in jax.tree.leaves(g(*args)))

    argnums = tuple(range(len(VALUES) + 1))
    slopes = [jax.jit(jax.grad(total(g), argnums))(SEEN, *VALUES) for g in graphs]
    for a, b in zip(*slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    pushed = [
        jax.jvp(total(g), (SEEN, *VALUES), (SEEN, *map(np.ones_like, VALUES)))[1] for g in graphs
    ]
    np.testing.assert_allclose(*pushed, rtol=1e-9)
    second = [jax.hessian(lambda x, g=g: total(g)(SEEN, *VALUES[:3], x))(VALUES[3]) for g in graphs]
    np.testing.assert_allclose(*second, rtol=1e-8)


@pytest.mark.slow
def test_no_loop_over_the_steps_is_left_where_the_result_passes():
    parallel, _ = both(textbook, START, [y, *MODEL], y)
    program = jax.make_jaxpr(parallel)(np.zeros((4096, P)), *VALUES).jaxpr
    lengths = [eqn.params["length"] for eqn in scans_outside_branches(program)]
    assert lengths
    assert max(lengths) < 1000


def scans_outside_branches(jaxpr):
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "scan":
            yield eqn
        if eqn.primitive.name != "cond":
            for inner in inner_jaxprs(eqn):
                yield from scans_outside_branches(getattr(inner, "jaxpr", inner))


@pytest.mark.slow
def test_batches_of_series_and_of_models():
    parallel, plain = both(of_predictions, START, [y, *MODEL], y)
    series = RNG.normal(size=(3, T, P))
    noise = np.array([0.1, 1.0, 10.0])[:, None, None]
    axes = (0, None, None, None, 0)
    compare(*(jax.vmap(g, axes) for g in (parallel, plain)), series, *VALUES[:3], noise)


@pytest.mark.slow
def test_equal_to_the_builder():
    own, _ = both(textbook, START, [y, *MODEL], y)
    model = kalman_filter(y, *MODEL, f @ START[0], f @ START[1] @ f.T + q)
    built = jaxify([y, *MODEL], [model.means, model.covariances[-1]])(SEEN, *VALUES)
    (_, last, _), means = own(SEEN, *VALUES)
    np.testing.assert_allclose(means, built[0], rtol=1e-11)
    np.testing.assert_allclose(last, built[1], rtol=1e-11)


@pytest.mark.slow
def test_start_that_is_not_symmetric_takes_the_steps_one_by_one():
    """The gain reads the transpose of the covariance there, which the blocks do not."""
    parallel, plain = both(
        lambda c, _: (of_predictions((np.zeros(K), c, 0.0), SEEN[0])[0][1], c),
        pt.constant(np.array([[1.0, 0.8], [0.1, 0.5]])),
        MODEL,
        length=9,
    )
    compare(parallel, plain, *VALUES)


@pytest.mark.slow
def test_observation_without_noise():
    """Without a covariance the innovation has none: the coefficients are nan, the steps are not."""
    parallel, plain = both(of_predictions, START, [y, *MODEL], y)
    compare(parallel, plain, SEEN, *VALUES[:3], np.zeros((P, P)))
    assert "linear-fractional" in parallel.remarks[0]


x, v = pt.dscalar("x"), pt.dvector("v")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("step", "init"),
    [
        (lambda p, n: (1.8 * p / (1 + x * p), p), 0.3),  # Beverton and Holt (1957)
        (lambda p, n: ((p + n) * x / (p + n + x), p), 1.0),  # the variance of a level
        (lambda p, n: (1 / (1 + x * p), p), 0.5),  # a continued fraction
        (lambda p, n: (n * p / (1 + v * p), p), np.array([0.1, 1.0, 2.0])),
        (lambda p, n: (n * p / (1 + v * p), p), np.array([[0.1, 1.0, 3.0], [2.0, 0.3, 0.2]])),
    ],
    ids=["population", "level", "continued fraction", "vector", "matrix of numbers"],
)
def test_numbers(step, init):
    rows = pt.dvector("rows")
    parallel, plain = both(step, init, [rows, x, v], rows)
    compare(parallel, plain, 1 + RNG.random(T), 0.7, np.array([0.5, 1.0, 0.0]))
    assert "state 0 linear-fractional, 1 x 1" in parallel.remarks[0]


@pytest.mark.slow
def test_riccati_equation_of_control():
    """Backwards from the last step; Bertsekas (2017), "Dynamic programming and optimal control", 3.1."""

    def step(p, weight):
        gain = pt.linalg.solve(r + h @ p @ h.T, h @ p @ f)
        return f.T @ p @ f - f.T @ p @ h.T @ gain + weight * q, gain

    weights = pt.dvector("weights")
    parallel, plain = both(step, q, [weights, *MODEL], weights, reverse=True)
    compare(parallel, plain, 1 + RNG.random(T), *VALUES)
    assert "linear-fractional, 2 x 2" in parallel.remarks[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "step",
    [
        lambda c: c @ c / (1 + c.sum()),
        lambda c: pt.tanh(f @ c @ f.T),
        lambda c: f @ pt.linalg.inv(EYE + c @ q @ c) @ f.T,
        lambda c: c / pt.trace(c),
    ],
)
def test_other_steps_are_not(step):
    parallel, plain = both(lambda c, _: (step(c), c), EYE, MODEL, length=5)
    with pytest.warns(UserWarning, match="takes its steps one by one"):
        compare(parallel, plain, *VALUES)


def test_single_precision():
    a, noise = pt.fscalar("a"), pt.fvector("noise")
    one = np.float32(1)
    parallel, plain = both(
        lambda p, n: (a * p * n / (p + n) + one, p), pt.constant(one), [a, noise], noise
    )
    compare(parallel, plain, np.float32(0.9), np.float32(1 + RNG.random(T)), rtol=1e-6)
    assert "linear-fractional" in parallel.remarks[0]


@pytest.mark.slow
def test_trial_of_a_step_does_not_stop_at_nan():
    """The inverse of a matrix 0, at which the step is tried."""
    parallel, plain = both(lambda c, _: (pt.linalg.inv(c) + EYE, c), EYE, [], length=5)
    with jax.debug_nans(True), pytest.warns(UserWarning, match="takes its steps one by one"):
        compare(parallel, plain)
