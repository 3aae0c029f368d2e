"""PyMC models through jaxify: their log-density, its gradients, their compiled functions."""

import jax
import numpy as np
import pytest

from loopax import jaxify

pm = pytest.importorskip("pymc", reason="PyMC 6 needs Python 3.12; it is in the pymc extra")

pytestmark = [
    # PyMC checks parameters with assertions, which JAX skips: jaxify says so, once a function.
    pytest.mark.filterwarnings("ignore:The assertion .* depends on traced values:UserWarning"),
    # Where no BLAS library is found, PyTensor's C mode, which is the reference here, says so.
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS installation:UserWarning"),
]

RNG = np.random.default_rng(8)


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


def test_a_compiled_log_density(model, point):
    compiled = model.compile_logp()
    np.testing.assert_allclose(jaxify(compiled.f)(**point), compiled(point), rtol=1e-10)


def test_new_data_are_seen(model, point):
    f = jaxify(model.value_vars, model.logp())
    before = f(**point)
    with model:
        pm.set_data({"x": np.zeros((20, 3))})
    assert f(**point) != before
    np.testing.assert_allclose(f(**point), model.compile_logp()(point), rtol=1e-10)
