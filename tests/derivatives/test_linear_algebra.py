"""Gradients through linear algebra, by every route: PyTensor's transpiled, JAX's, and ours."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify

M = pt.dmatrix("m")
ROUTES = {
    "pytensor.grad in JAX": lambda y: jaxify([M], pytensor.grad(y, M), loops="xla"),
    "pytensor.grad in Numba": lambda y: jaxify([M], pytensor.grad(y, M), backend="numba"),
    "jax.grad": lambda y: jax.grad(jaxify([M], y, loops="xla")),
    "jax.grad of native code": lambda y: jax.grad(jaxify([M], y, loops="native")),
    "loopax.grad in Numba": lambda y: loopax.grad(jaxify([M], y, backend="numba")),
}


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_eigenvalues_that_are_equal(route):
    """Nobody reads the eigenvectors, of which there are many."""
    total = (pt.linalg.eigh(M)[0] ** 2).sum()
    slope = ROUTES[route](total)(np.diag([1.0, 2.0, 2.0]))
    np.testing.assert_allclose(slope, np.diag([2.0, 4.0, 4.0]), atol=1e-12)


def _iterated(norm):
    def step(u, m):
        w = m @ (m.T @ u)
        return w / norm(w)

    return pytensor.scan(
        step, outputs_info=pt.ones(4), non_sequences=[M], n_steps=3, return_updates=False
    )[-1].sum()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "norm", [pt.linalg.norm, lambda w: pt.sqrt((w**2).sum())], ids=["norm", "written out"]
)
def test_power_iteration(norm, route):
    """A norm is that of a column in the step, whose second length is 1 by how it is made."""
    at, step = np.random.default_rng(0).normal(size=(4, 3)), 1e-6
    total = _iterated(norm)
    slope = ROUTES[route](total)(at)
    f = jaxify([M], total, backend="numba")
    moved = step * np.eye(at.size).reshape(at.size, *at.shape)
    differences = [(f(at + d) - f(at - d)) / (2 * step) for d in moved]
    np.testing.assert_allclose(np.ravel(slope), differences, atol=1e-8)
