"""Derivatives of cumulative products, where elements are 0 too, are JAX's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE


@pytest.mark.sampled(1)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_derivatives_to_second_order(axis):
    m = pt.dmatrix("m")
    at = np.array([[2.0, 0.0, 3.0], [0.0, 1.5, 0.0], [-1.0, 0.5, 2.0]])
    weights = np.random.default_rng(1).normal(size=9 if axis is None else (3, 3))
    value = jaxify([m], (weights * pt.cumprod(m, axis=axis)).sum(), backend=NATIVE)
    slope = loopax.grad(value)
    direction = np.linspace(-1.0, 1.0, 9).reshape(3, 3)
    along = loopax.grad(
        jaxify([m], (loopax.grad(_weighted(weights, axis))(m) * direction).sum(), backend=NATIVE)
    )

    def by_jax(x):
        return (weights * jnp.cumprod(x if axis is not None else x.ravel(), axis=axis or 0)).sum()

    for x in (at, np.abs(at) + 0.5, np.zeros((3, 3))):
        np.testing.assert_allclose(slope(x), jax.grad(by_jax)(x), atol=1e-12)
    # Of the gradient as PyTensor has it, where that is a number.
    x = np.abs(at) + 0.5
    np.testing.assert_allclose(along(x), jax.jvp(jax.grad(by_jax), (x,), (direction,))[1])


def _weighted(weights, axis):
    return lambda m: (weights * pt.cumprod(m, axis=axis)).sum()


@pytest.mark.slow
def test_second_order_at_zeros():
    x = pt.dvector("x")
    f = jaxify([x], (pt.cumprod(x) * [1.0, -2.0, 0.5, 3.0]).sum(), loops="native")
    by_jax = jax.hessian(lambda x: (jnp.cumprod(x) * jnp.array([1.0, -2.0, 0.5, 3.0])).sum())
    for at in ([2.0, 0.0, 3.0, 0.0], [0.0, 0.0, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]):
        np.testing.assert_allclose(jax.hessian(f)(np.array(at)), by_jax(np.array(at)), atol=1e-12)


def test_lengths_zero_and_one():
    x = pt.dvector("x")
    slope = loopax.grad(jaxify([x], pt.cumprod(x).sum(), backend=NATIVE))
    assert slope(np.zeros(0)).shape == (0,)
    assert slope(np.zeros(1)).tolist() == [1.0]
