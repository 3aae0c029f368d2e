"""PyMC models through jaxify and the modes: log-densities, gradients, compiled functions, draws."""

import jax
import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import get_mode

from loopax import jaxify
from tests.support.marking import slow_where

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

pytestmark = [
    pytest.mark.both_stacks,
    # PyMC checks parameters with assertions, which JAX skips: jaxify says so, once a function.
    pytest.mark.filterwarnings("ignore:The assertion .* depends on traced values:UserWarning"),
    # Where no BLAS library is found, PyTensor's C mode, which is the reference here, says so.
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS installation:UserWarning"),
]

RNG = np.random.default_rng(8)
BOTH_MODES = pytest.mark.parametrize(
    "mode", slow_where(lambda mode: mode == "LOOPAX_NUMBA", ["LOOPAX", "LOOPAX_NUMBA"])
)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
        walk = pm.GaussianRandomWalk(
            "walk", sigma=scale, init_dist=pm.Normal.dist(0.0, 1.0), shape=20
        )
        x = pm.Data("x", RNG.normal(size=(20, 3)))
        weight = pm.Beta("weight", 2.0, 2.0)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        pm.Normal("y", walk + x @ slopes, weight + 0.1, observed=RNG.normal(size=20))
        pm.MvNormal("z", np.zeros(2), chol=chol, observed=RNG.normal(size=(5, 2)))
    return model


@pytest.fixture(scope="module")
def point(model):
    start = model.initial_point()
    return {k: v + 0.1 * RNG.normal(size=np.shape(v)) for k, v in start.items()}


@pytest.mark.slow
def test_log_density_and_gradients(model, point):
    f = jaxify(model.value_vars, model.logp())
    values = [point[v.name] for v in model.value_vars]
    np.testing.assert_allclose(f(*values), model.compile_logp()(point), rtol=1e-10)
    # A name that is no identifier, "chol_cholesky-cov-packed__", still goes by name.
    np.testing.assert_allclose(f(**point), f(*values), rtol=1e-15)

    expected = model.compile_dlogp()(point)
    by_jax = jax.jit(jax.grad(f, argnums=tuple(range(len(values)))))(*values)
    flat = np.concatenate([np.ravel(g) for g in by_jax])
    np.testing.assert_allclose(flat, expected, rtol=1e-7, atol=1e-10)
    by_pytensor = jaxify(model.value_vars, model.dlogp())
    np.testing.assert_allclose(by_pytensor(*values), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_a_compiled_log_density(model, point):
    compiled = model.compile_logp()
    np.testing.assert_allclose(jaxify(compiled.f)(**point), compiled(point), rtol=1e-10)


@pytest.mark.slow
def test_new_data_are_seen(model, point):
    f = jaxify(model.value_vars, model.logp())
    before = f(**point)
    with model:
        pm.set_data({"x": np.zeros((20, 3))})
    assert f(**point) != before
    np.testing.assert_allclose(f(**point), model.compile_logp()(point), rtol=1e-10)


# -- PyTensor's modes, by the arguments that PyMC has for them -----------------------------------------


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(8)
    with pm.Model(coords={"slope": ["a", "b"]}) as model:
        x = pm.Data("x", rng.normal(size=(30, 2)))
        slopes = pm.Normal("slopes", 0.0, 1.0, dims="slope")
        scale = pm.HalfNormal("scale", 1.0)
        pm.Deterministic("twice", 2 * slopes, dims="slope")
        y = x.get_value() @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=30)
        pm.Normal("y", x @ slopes, scale, observed=y, shape=x.shape[0])
    return model


@pytest.mark.slow
@BOTH_MODES
def test_predictive_draws(regression, mode):
    options = {"random_seed": 1, "compile_kwargs": {"mode": mode}}
    rows = regression["x"].get_value()
    with regression:
        prior = pm.sample_prior_predictive(40, var_names=["slopes", "twice", "scale"], **options)
        try:
            pm.set_data({"x": rows[:3]})
            after = pm.sample_posterior_predictive(prior.prior, progressbar=False, **options)
        finally:
            pm.set_data({"x": rows})
    slopes = prior.prior["slopes"]
    np.testing.assert_allclose(prior.prior["twice"], 2 * slopes)
    assert list(slopes.coords["slope"].values) == ["a", "b"]
    assert len(np.unique(slopes)) == slopes.size and 0.6 < float(slopes.std()) < 1.4
    assert after.posterior_predictive["y"].shape == (1, 40, 3)


@pytest.mark.slow
@BOTH_MODES
def test_pm_sample(regression, mode):
    options = {"draws": 20, "tune": 30, "chains": 1, "cores": 1, "random_seed": 1}
    options |= {"progressbar": False, "compute_convergence_checks": False}
    with regression:
        actual = pm.sample(compile_kwargs={"mode": mode}, **options)
        with pytensor.config.change_flags(mode=get_mode(mode)):
            by_config = pm.sample(nuts_sampler="pymc", **options)
        expected = pm.sample(compile_kwargs={"mode": "FAST_COMPILE"}, **options)
    np.testing.assert_array_equal(actual.posterior["slopes"], by_config.posterior["slopes"])
    # The same steps of the same sampler, until roundings grow.
    np.testing.assert_allclose(
        actual.posterior["slopes"][0, :5], expected.posterior["slopes"][0, :5], rtol=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["LOOPAX", "LOOPAX_NUMBA"])
def test_draws_are_seeded(mode):
    x = pm.Normal.dist(pm.Gamma.dist(2.0, 1.0), 1.0)
    first, same, other = (pm.draw(x, 3, random_seed=s, mode=mode) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.intersect1d(first, other).size and len(set(first)) == 3
