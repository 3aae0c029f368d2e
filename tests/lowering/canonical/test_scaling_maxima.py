"""Maxima that only scale: one is subtracted, and no derivative passes through it."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.special
from pytensor.gradient import DisconnectedGrad
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax import jaxify
from loopax.lowering.canonical.scaling_maxima import scaling_maxima
from tests.support.compare import primitives
from tests.support.kept import rewritten

Z = pt.dmatrix("z")
AT = np.array([[0.3, -1.2, 0.7], [2.0, 2.0, -0.4]])


def by_hand(z, axis=1, c=1.0, guard=False):
    m = pt.max(z, axis=axis, keepdims=True)
    if guard:
        m = pt.switch(pt.isinf(m), 0.0, m)
    total = c * pt.log(pt.sum(pt.exp((z - m) / c), axis=axis)) + pt.squeeze(m, axis=axis)
    return total


# Each with the function of NumPy, of which a derivative is that of all.
SCALING = {
    "logsumexp": (lambda z: pt.logsumexp(z, axis=1), lambda z: scipy.special.logsumexp(z, axis=1)),
    "of all": (pt.logsumexp, scipy.special.logsumexp),
    "log of a sum": (lambda z: pt.log(pt.exp(z).sum()), scipy.special.logsumexp),
    "scaled": (
        lambda z: -0.7 * pt.logsumexp(-z / 0.7, axis=0, keepdims=True),
        lambda z: -0.7 * scipy.special.logsumexp(-z / 0.7, axis=0, keepdims=True),
    ),
    "by hand": (by_hand, lambda z: scipy.special.logsumexp(z, axis=1)),
    "by hand, scaled": (
        lambda z: by_hand(z, 0, 0.3),
        lambda z: 0.3 * scipy.special.logsumexp(z / 0.3, axis=0),
    ),
    "by hand, guarded": (
        lambda z: by_hand(z, 1, 2.0, guard=True),
        lambda z: 2.0 * scipy.special.logsumexp(z / 2.0, axis=1),
    ),
    "by hand, of a sum": (
        lambda z: by_hand(2.0 * z - z[0] + 1.0),
        lambda z: scipy.special.logsumexp(2.0 * z - z[0] + 1.0, axis=1),
    ),
    "softmax": (
        lambda z: pt.special.softmax(z, axis=1) ** 2,
        lambda z: scipy.special.softmax(z, axis=1) ** 2,
    ),
    "log_softmax": (
        lambda z: pt.special.log_softmax(z, axis=0),
        lambda z: scipy.special.log_softmax(z, axis=0),
    ),
    "logaddexp": (lambda z: pt.logaddexp(z[0], 2 * z[1]), lambda z: np.logaddexp(z[0], 2 * z[1])),
    "product of matrices": (
        lambda z: (
            pt.log(pt.dot(pt.exp(z - z.max(axis=1, keepdims=True)), np.ones((3, 2)) + np.eye(3, 2)))
            + z.max(axis=1, keepdims=True)
        ),
        lambda z: np.log(np.exp(z) @ (np.ones((3, 2)) + np.eye(3, 2))),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCALING)
def test_one_maximum_and_no_derivative_through_it(name):
    build, exact = SCALING[name]
    f = jaxify([Z], build(Z), loops="xla")
    names = primitives(jax.make_jaxpr(f)(AT))
    assert names["reduce_max"] + names["reduce_min"] + names["max"] == 1 + (name == "softmax")
    assert names["stop_gradient"]
    gradient = primitives(jax.make_jaxpr(jax.grad(lambda z: f(z).sum()))(AT))
    assert not gradient["optimization_barrier"]
    np.testing.assert_allclose(f(AT), exact(AT), rtol=1e-12)
    slopes = jax.grad(lambda z: f(z).sum())(AT)
    e = 1e-6 * np.random.default_rng(0).normal(size=AT.shape)
    by_differences = (np.sum(exact(AT + e)) - np.sum(exact(AT - e))) / 2
    np.testing.assert_allclose(np.sum(slopes * e), by_differences, rtol=1e-4, atol=1e-12)


NOT_SCALING = {
    "a maximum": lambda z: z.max(axis=1),
    "of another axis": lambda z: pt.log(pt.exp(z - z.max(axis=1, keepdims=True)).sum(axis=0)),
    "shared by rows": lambda z: (
        pt.log(pt.exp(z - z.max(axis=1, keepdims=True)).sum()) + z.max(axis=1).mean()
    ),
    "and a little more": lambda z: pt.logsumexp(z) + 1e-9 * z.max(),
    "small": lambda z: 1e-30 * z.max(),
    "not added": lambda z: pt.log(pt.exp(z - z.max()).sum()),
    "squared": lambda z: (z - z.max()) ** 2,
    "chosen": lambda z: pt.switch(z > 0, z - z.max(), z.max()),
    "one of two": lambda z: pt.maximum(z[0], z[1]) - z[0],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NOT_SCALING)
def test_other_maxima_keep_their_derivative(name):
    out = NOT_SCALING[name](Z)
    f = jaxify([Z], out.sum(), loops="xla")
    want = pytensor.function([Z], pytensor.grad(out.sum(), Z), mode="FAST_COMPILE")
    at = AT + [[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]]  # no ties
    np.testing.assert_allclose(jax.grad(f)(at), want(at), rtol=1e-12, atol=0)


def test_the_pass_alone():
    m = Z.max(axis=1, keepdims=True)
    out = pt.log(pt.exp(Z - m).sum(axis=1, keepdims=True)) + m
    graph = rewritten(FunctionGraph([Z], [out, Z.max(axis=0)], clone=True), scaling_maxima, [AT])
    assert sum(isinstance(n.op, DisconnectedGrad) for n in graph.apply_nodes) == 1


def test_the_maximum_of_other_elements_is_no_shift():
    """It subtracts no large number from what is large."""
    x, y = pt.dvectors("x", "y")
    f = jaxify([x, y], pt.log(pt.exp(x - y.max()).sum()), loops="xla")
    assert f(np.array([1000.0, 999.0]), np.zeros(2)) == scipy.special.logsumexp([1000.0, 999.0])
    g = jaxify([x], pt.log(pt.exp(2.0 * x - x.max()).sum()), loops="xla")
    assert g(np.array([1000.0])) == 1000.0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_infinities(loops):
    z = pt.dvector("z")
    f = jaxify([z], pt.logsumexp(z), loops=loops)
    inf = np.inf
    for at in ([-inf, 1.0, 1.0], [-inf, -inf], [inf, 0.0], [3.0], [1000.0, -1000.0]):
        np.testing.assert_equal(np.asarray(f(np.array(at))), scipy.special.logsumexp(at))
    np.testing.assert_allclose(jax.grad(f)(np.array([-inf, 1.0, 1.0])), [0.0, 0.5, 0.5])
    np.testing.assert_allclose(jax.grad(f)(np.array([1000.0, 0.0])), [1.0, 0.0])


def soft_minimum(x, y):
    def step(c, q):
        return -0.7 * pt.logsumexp(-pt.stack([c, q]) / 0.7) + x[0] ** 2, None

    return loopax.scan(step, 1000.0, y)[0]


def by_lax(x, y):
    def step(c, q):
        z = -jax.numpy.stack([c, q]) / 0.7
        return -0.7 * jax.nn.logsumexp(z) + x[0] ** 2, None

    return jax.lax.scan(step, 1000.0, y)[0]


@pytest.mark.slow
@pytest.mark.parametrize("loops", ["xla", "native"])
def test_in_a_loop(loops, as_users_have_it):
    """Its gradient was nan: XLA rounds ``-z / 0.7 - m`` in two ways."""
    x, y = pt.dvectors("x", "y")
    at, data = np.array([0.1, 0.5]), np.array([0.2, 0.3, 0.9])
    f = jaxify([x, y], soft_minimum(x, y), loops=loops)
    want = jax.grad(by_lax)(at, data)
    for g in jax.grad(f), jax.jit(jax.grad(f)), jax.jacfwd(f):
        np.testing.assert_allclose(g(at, data), want, rtol=1e-12)
    batch = jax.jit(jax.vmap(jax.grad(f), (0, None)))(np.stack([at, at + 1]), data)
    np.testing.assert_allclose(batch[0], want, rtol=1e-12)
    hessian = jax.jit(jax.hessian(f))(at, data)
    np.testing.assert_allclose(hessian, jax.hessian(by_lax)(at, data), rtol=1e-10)


def test_lazy_gradients():
    f = jaxify([Z], loopax.grad(lambda z: pt.logsumexp(z, axis=1).sum())(Z), loops="xla")
    np.testing.assert_allclose(f(AT), scipy.special.softmax(AT, axis=1), rtol=1e-12)


def test_a_long_chain_of_normalized_steps_ends():
    """However many sums are nested in the exponents: a limit of 12 made `stabilize` run for ever."""
    x, steps = pt.dvector("x"), 20
    v = x
    for _ in range(steps):
        v = v - pt.log(pt.exp(v).sum()) + v * 0.1
    f = jaxify([x], v.sum(), loops="xla")
    at = np.array([0.3, -0.2, 0.5])
    value = at
    for _ in range(steps):
        value = value - np.log(np.exp(value).sum()) + value * 0.1
    np.testing.assert_allclose(f(at), value.sum(), rtol=1e-12)
    text = str(jax.make_jaxpr(f)(at))
    assert text.count(" exp ") == steps
    assert text.count("reduce_max") <= 2 * steps
