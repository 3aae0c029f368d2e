"""A backward step reads dear values of the forward step from traces, in derivatives of any order."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.lowering import lower_to_loops
from tests.numba_backend.interpreted import interpreted
from tests.support.both_backends import NATIVE
from tests.support.compare import imported

RNG = np.random.default_rng(7)
N = 14  # a product by a matrix of 14 columns is dear, by one of 10 it is not


def markov(m, w, s, x):
    s = m.exp(-((x - s) ** 2)) * (s @ m.tanh(w))
    return s / (1.0 + s.sum()), s.sum()


def recurrent(m, w, s, x):
    s = m.tanh(w @ s + x)
    return s, (w @ s).sum()


def product_of_row(m, w, s, x):
    y = m.outer(x, x) @ w[0]  # of the row alone
    return 0.5 * s + m.tanh(y), (s @ y) ** 2


def factorized(m, w, s, x):
    a = w @ w.T * 0.1 + m.outer(s, s) * 0.1 + m.eye(w.shape[0])
    factor = m.linalg.cholesky(a)
    s = m.linalg.solve(a, s + x)
    return s, m.log(m.diag(factor)).sum()


STEPS = {
    "a hidden Markov model": markov,
    "a recurrent net": recurrent,
    "a product of a row": product_of_row,
    "a factor and a system": factorized,
}


def programs(name, n):
    """The function as a graph, the inputs, and the same function in JAX."""
    step = STEPS[name]
    w, s, xs = (
        pt.matrix("w", shape=(n, n)),
        pt.vector("s", shape=(n,)),
        pt.matrix("x", shape=(5, n)),
    )
    last, rows = loopax.scan(lambda s, x: step(pt, w, s, x), s, xs)

    def by_hand(w, s, xs):
        last, rows = jax.lax.scan(lambda s, x: step(jnp, w, s, x), s, xs)
        return (last**2).sum() + rows.sum()

    return [w, s, xs], (last**2).sum() + rows.sum(), by_hand


def values(n):
    return 0.3 * RNG.normal(size=(n, n)), RNG.normal(size=n), RNG.normal(size=(5, n))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("n", [3, N])
def test_derivatives_of_two_orders(name, n):
    inputs, out, by_hand = programs(name, n)
    args, along = values(n), values(n)
    wrt = 0, 1, 2
    for options in ({"loops": "xla"}, {"backend": NATIVE}):
        f = loopax.jaxify(inputs, out, **options)
        actual = loopax.grad(f, wrt)(*args)
        for a, b in zip(actual, jax.grad(by_hand, wrt)(*args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        actual = loopax.hvp(f, args, along)
        expected = jax.jvp(jax.grad(by_hand, wrt), args, along)[1]
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_third_derivatives_of_native_loops(name):
    inputs, out, by_hand = programs(name, N)
    args = values(N)
    f = loopax.jaxify(inputs, out, loops="native")
    third = jax.jit(jax.hessian(jax.grad(f, 1), 1))(*args)
    expected = jax.jit(jax.hessian(jax.grad(by_hand, 1), 1))(*args)
    np.testing.assert_allclose(third, expected, rtol=1e-7, atol=1e-8)


def test_factors_of_nothing_are_not_stored():
    """A matrix of known shape (0, 0) has no cost to share out among its entries."""
    inputs, out, _ = programs("a factor and a system", 0)
    args = values(0)
    f = loopax.jaxify(inputs, out, backend=NATIVE)
    for a, b in zip(loopax.grad(f, (0, 1, 2))(*args), args, strict=True):
        assert a.shape == b.shape


@pytest.mark.parametrize(("n", "in_forward", "in_backward"), [(N, 1, 1), (10, 1, 2)])
def test_products_in_the_two_loops(n, in_forward, in_backward):
    """The backward loop has the product with the cotangent, and of few columns the one of the step."""
    w, s, xs = (
        pt.matrix("w", shape=(n, n)),
        pt.vector("s", shape=(n,)),
        pt.matrix("x", shape=(5, n)),
    )

    def total(s):
        return loopax.scan(lambda s, x: (pt.tanh(w @ s + x), None), s, xs)[0].sum()

    gradient = loopax.grad(total)(s)
    graph = imported([w, s, xs], [gradient]).graph
    lower_to_loops(graph)
    source = interpreted(graph).source
    forward, backward = source.split("in range(5):")[1:]
    counts = [len(re.findall(r"matvec\(", part)) for part in (forward, backward)]
    assert counts == [in_forward, in_backward], source
