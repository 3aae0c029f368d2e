"""Draws of loops by PyMC's own functions: seeded, and others at each call."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax

pm = pytest.importorskip("pymc")


def walk(start=0.0, drift=0.0):
    def step(carry, _):
        x, rng = carry
        rng, x = pt.random.normal(x + drift, 1.0, rng=rng, return_next_rng=True)
        return (x, rng), x

    rng = pytensor.shared(np.random.default_rng(0))
    return loopax.scan(step, (start, rng), length=3)[1]


@pytest.mark.parametrize("mode", [None, "LOOPAX_NUMBA"])
def test_draws(mode):
    first, again, other = (pm.draw(walk(), draws=3, random_seed=s, mode=mode) for s in (1, 1, 2))
    assert np.unique(first).size == 9
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()


def test_prior_predictive():
    with pm.Model():
        pm.Deterministic("path", walk(pm.Normal("mu")))
        paths = pm.sample_prior_predictive(4, random_seed=1).prior["path"].values
    assert np.unique(np.diff(paths)).size == 8


def test_a_distribution_that_a_loop_draws():
    with pm.Model():
        y = pm.CustomDist("y", 0.5, dist=lambda mu, size: walk(drift=mu), shape=(3,))
    assert np.unique(pm.draw(y, draws=3, random_seed=3)).size == 9


def test_a_generator_outside_the_carry_is_refused():
    rng = pytensor.shared(np.random.default_rng(0))

    def step(c, _):
        return c, pt.random.normal(c, 1.0, rng=rng, return_next_rng=True)[1]

    trace = loopax.scan(step, 0.0, length=3)[1]
    with pytest.raises(ValueError, match="No update found"):
        pm.draw(trace)


def test_a_loop_without_draws_is_no_random_variable():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("p", loopax.scan(lambda c, x: (c + x * a, None), 0.0, np.ones(3))[0])
    assert model.compile_logp()({"a": 2.0}) == pytest.approx(-2 - 0.5 * np.log(2 * np.pi) + 6)
