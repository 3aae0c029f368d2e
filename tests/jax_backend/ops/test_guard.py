"""Branches that are not taken, of functions without a derivative there: `loopax.jax_backend.ops.guard`."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.special

from loopax import jaxify

X = pt.dvector("x")
AT = np.array([0.0, 4.0])
DENSE = np.array([[0.7, 0.1], [0.2, 1.2]])
INF = np.inf

# A function, and its gradient at 0 and 4, where it is the limit of no derivative that is finite.
BRANCHES = {
    "sum": (pt.switch(X[0] > 0, pt.sqrt(X).sum(), 0.0), [0.0, 0.0]),
    "element": (pt.switch(X[0] > 0, pt.sqrt(X)[0], 0.0), [0.0, 0.0]),
    "reversed": (pt.switch(X[::-1] > 0, pt.sqrt(X)[::-1], 0.0).sum(), [0.0, 0.25]),
    "read by both": (pt.switch(X > 0, pt.sqrt(X)[0] + pt.sqrt(X)[::-1], 0.0).sum(), [INF, 0.0]),
    "column": (
        pt.switch((X > 0)[:, None], 2 * pt.log(X)[:, None] + np.zeros((2, 3)), 0.0).sum(),
        [0.0, 1.5],
    ),
    "behind a function that overflows": (
        pt.switch(X > 0, pt.exp(pt.sqrt(X)), 1.0).sum(),
        [0.0, np.exp(2.0) / 4],
    ),
    "behind functions": (
        pt.switch(X > 0, pt.tanh(pt.abs(pt.log(X))), 1.0).sum(),
        [0.0, 0.25 / np.cosh(np.log(4.0)) ** 2],
    ),
    "two switches": (
        (pt.switch(X > 0, pt.log(X), 0.0) * pt.switch(X > 0, pt.exp(pt.sqrt(X)), 1.0)).sum(),
        [0.0, np.exp(2.0) * (1 + np.log(4.0)) / 4],
    ),
    "sum of rows": (
        pt.switch(X > 0, (pt.sqrt(X)[:, None] * np.array([[1.0, 2.0]])).sum(axis=1), 0.0).sum(),
        [0.0, 0.75],
    ),
    # What a row reads that is taken has its derivative.
    "dense": (pt.switch(X > 0, pt.dot(DENSE, pt.sqrt(X)), 0.0).sum(), [INF, 0.3]),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BRANCHES)
def test_elements_that_only_the_other_branch_needs(name):
    out, expected = BRANCHES[name]
    f = jaxify([X], out, loops="xla")
    value = pytensor.function([X], out, mode="FAST_COMPILE")(AT)
    np.testing.assert_array_equal(f(AT), value)
    for g in jax.grad(f), jax.jit(jax.grad(f)):
        np.testing.assert_allclose(g(AT), expected, rtol=1e-12)
    if INF not in expected:
        np.testing.assert_allclose(jax.jacfwd(f)(AT), expected, rtol=1e-12)
        assert np.isfinite(jax.hessian(f)(AT)).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_a_product_of_matrices_ends_the_guard(loops):
    """As the table of kinks says. PyTensor's 0 comes of a rewrite of products with diagonal constants."""
    out = pt.switch(X > 0, pt.dot(np.diag([0.7, 1.2]), pt.sqrt(X)), 0.0).sum()
    slopes = jax.grad(jaxify([X], out, loops=loops))(AT)
    np.testing.assert_allclose(slopes, [np.nan, 0.3])
    out = pt.switch(X > 0, np.array([0.7, 1.2]) * pt.sqrt(X), 0.0).sum()
    slopes = jax.grad(jaxify([X], out, loops=loops))(AT)
    np.testing.assert_allclose(slopes, [0.0, 0.3])


@pytest.mark.filterwarnings("ignore:.*on the host")
def test_a_function_of_the_host_ends_the_guard():
    """JAX has no modified Bessel function of another order than 0 and 1."""
    out = pt.switch(X > 0, pt.ive(pt.sqrt(X) + 0.5, X + 1.0), 0.0)
    f = jax.vmap(jaxify([X], out, loops="xla"))
    expected = np.array([0.0, scipy.special.ive(2.5, 5.0)])
    np.testing.assert_allclose(f(np.stack([AT, AT])), [expected, expected], rtol=1e-12)
