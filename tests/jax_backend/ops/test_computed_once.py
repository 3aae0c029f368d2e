"""Sums whose sign decides something are computed once: `loopax.jax_backend.ops.computed_once`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from tests.support.compare import primitives

GRIDS = np.linspace(0.0, 1.0, 12)[:, None], np.linspace(0.0, 2.0, 15)[:, None]


def matern(x, length):
    """Of one column, where PyTensor's rewrites leave a product of a column and a row, no dot product."""
    z = pt.mul(x, 1.0 / length)
    squares = pt.sum(pt.square(z), axis=1)
    d = -2.0 * pt.dot(z, z.T) + (squares[:, None] + squares[None, :])
    r = np.sqrt(3.0) * pt.sqrt(pt.clip(d, 0.0, np.inf) + 1e-12)
    return (1.0 + r) * pt.exp(-r)


@pytest.mark.slow
@pytest.mark.parametrize("route", ["transpiled", "jax.grad"])
def test_the_mask_of_a_clipped_distance_is_that_of_what_it_masks(route):
    """Of a process on a grid, through the eigenvectors of its factors, as PyMC has it."""
    length = pt.dvector("length")
    (a, across), (b, along) = (pt.linalg.eigh(matern(x, length[k])) for k, x in enumerate(GRIDS))
    y = across.T @ np.random.default_rng(44).normal(size=(12, 15)) @ along
    variances = a[:, None] * b[None, :] + 0.25
    value = (y**2 / variances + pt.log(variances)).sum()
    gradient = pytensor.grad(value, length)
    f = jaxify([length], gradient) if route == "transpiled" else jax.grad(jaxify([length], value))
    exact = pytensor.function([length], gradient, mode="FAST_COMPILE")
    for at in np.random.default_rng(1).uniform(0.3, 1.5, (5, 2)):
        np.testing.assert_allclose(jax.jit(f)(jnp.asarray(at)), exact(at), rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "barriers"),
    [
        (lambda x: pt.clip(x + x.T, 0.0, 1.0), 1),
        (lambda x: pt.clip((x - x.T) / 2.0, 0.0, 1.0) + pt.ge((x - x.T) / 2.0, 0.0), 1),
        (lambda x: pt.maximum(x[0] + x[1], 0.0), 0),  # no matrix
        (lambda x: pt.clip(x * 2.0, 0.0, 1.0), 0),  # no sum
        (lambda x: pt.exp(x + x.T), 0),  # not compared
    ],
)
def test_only_matrices_that_come_of_a_sum_and_are_compared_are_held(build, barriers):
    x = pt.dmatrix("x")
    names = primitives(jax.make_jaxpr(jaxify([x], build(x)))(np.ones((2, 2))))
    assert names["optimization_barrier"] == barriers


def test_such_a_sum_in_a_branch_of_a_switch_is_held_too():
    """Its operands are guarded for the branch that is not taken, and the sum is computed of them alone."""
    x, length = np.linspace(0.0, 1.0, 4)[:, None], pt.dscalar("length")
    value = pt.switch(length > -9, pt.log(matern(x, pt.exp(length)) + 1).sum(), -np.inf)
    f = jaxify([length], value, loops="xla")
    assert primitives(jax.make_jaxpr(f)(0.0))["optimization_barrier"] == 1


@pytest.mark.slow
def test_second_derivatives_of_a_process_in_a_branch_of_a_switch():
    x, length = np.linspace(0.0, 1.0, 6)[:, None], pt.dscalar("length")
    factor = pt.linalg.cholesky(matern(x, pt.exp(length)) + 0.09 * np.eye(6))
    value = pt.switch(length > -9, pt.log(pt.diagonal(factor)).sum(), -np.inf)
    xla, native = (
        jax.jit(jax.hessian(jaxify([length], value, loops=k))) for k in ("xla", "native")
    )
    for at in np.linspace(-1.0, 1.0, 9):
        np.testing.assert_allclose(xla(at), native(at), rtol=1e-5)
