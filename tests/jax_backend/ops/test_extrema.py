"""Derivatives of largest and smallest elements: `loopax.jax_backend.ops.extrema`."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify
from tests.support.compare import primitives


def shifted(x, y):
    """Not independent of the maximum, which XLA takes of other roundings than the elements have."""

    def step(c, q):
        z = pt.stack([c * 1.1 + x[1], q * x[1] + c * 0.3])
        return pt.exp(z - pt.max(z)).sum() * 0.3, None

    return loopax.scan(step, 0.37, y)[0]


@pytest.mark.parametrize("mode", ["reverse", pytest.param("forward", marks=pytest.mark.slow)])
def test_an_element_is_computed_once(mode, as_users_have_it):
    x, y = pt.dvectors("x", "y")
    rng = np.random.default_rng(5)
    xs, data = rng.normal(size=(20, 2)), rng.normal(size=7)
    f = jaxify([x, y], shifted(x, y), loops="xla")
    derive = jax.grad if mode == "reverse" else jax.jacfwd
    slopes = jax.jit(jax.vmap(derive(f), (0, None)))(xs, data)
    e = 1e-6 * rng.normal(size=2)
    values = [jax.vmap(f, (0, None))(at, data) for at in (xs + e, xs - e)]
    np.testing.assert_allclose(slopes @ e, (values[0] - values[1]) / 2, rtol=1e-3, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_equal_elements_share(name, axis, dtype):
    """As in JAX, to any order and in both directions."""
    at = np.array([[1.0, 3.0, 3.0], [1.0, 0.0, 3.0]], dtype)
    x = pt.matrix("x", dtype=dtype)
    f = jaxify([x], getattr(pt, name)(x**2, axis=axis).sum(), loops="xla")

    def g(x):
        return getattr(jax.numpy, name)(x**2, axis=axis).sum()

    for derive in jax.grad, jax.jacfwd, jax.hessian, lambda f: jax.jacfwd(jax.grad(f)):
        ours, theirs = derive(f)(at), derive(g)(at)
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype == dtype
    batch = np.stack([at, -at])
    np.testing.assert_array_equal(jax.vmap(jax.grad(f))(batch), jax.vmap(jax.grad(g))(batch))


def test_the_barrier_is_the_derivatives():
    x = pt.dmatrix("x")
    f = jaxify([x], pt.max(x, axis=0).sum(), loops="xla")
    at = np.ones((3, 2))
    assert not primitives(jax.make_jaxpr(f)(at))["optimization_barrier"]
    assert primitives(jax.make_jaxpr(jax.grad(f))(at))["optimization_barrier"] == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(1, 1), (3, 0), (1, 4)])
def test_lengths_of_one_and_none(shape):
    x = pt.dmatrix("x")
    f = jaxify([x], pt.max(x, axis=0), loops="xla")
    at = np.ones(shape)
    np.testing.assert_array_equal(jax.jacobian(f)(at).shape, (shape[1], *shape))
    assert jax.grad(lambda x: f(x).sum())(at).sum() == shape[1]


@pytest.mark.both_stacks
def test_the_largest_of_rows_that_are_computed_outside():
    """With JAX 0.10 XLA computes them once more for the comparison, and finds none that is the largest."""
    m = pt.dmatrix("m")
    f = jaxify([m], pt.sin(m.max(axis=1)).sum(), loops="xla")

    def of_rows(x):
        level, rows = 0.5, []
        for k in range(6):
            level = 0.9 * level + x[k]
            rows.append(jax.numpy.sin(level + jax.numpy.arange(3.0) * x[k]) + 2)
        return f(jax.numpy.stack(rows))

    x = np.array([0.3, 1.2, 0.7, 2.0, 0.1, 1.5])
    e = 1e-6 * np.eye(6)
    numeric = [(of_rows(x + d) - of_rows(x - d)) / 2e-6 for d in e]
    np.testing.assert_allclose(jax.jit(jax.jacrev(of_rows))(x), numeric, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2])
def test_a_loop_that_reads_one_and_counts_first(order):
    """An integer as the first output of a reader says nothing about its other outputs."""
    x = pt.dvector("x")

    def step(carry, _):
        k, s = carry
        return (k * 3 % 7, s * pt.max(x)), None

    total = loopax.scan(step, (pt.constant(1), x[1]), None, length=3)[0]
    f = jaxify([x], total[1] + total[0], loops="xla")
    # The value is x[1] * max(x) ** 3, plus a number.
    slope = f if order == 1 else lambda v: jax.grad(f)(v).sum()
    expected = [[0.0, 8.0, 24.0], [0.0, 12.0, 36.0]][order - 1]
    np.testing.assert_allclose(
        jax.grad(slope)(np.array([1.0, 2.0, 2.0 + 1e-9])), expected, rtol=1e-6
    )
