"""The calls of BLAS in compiled programs are products, with derivatives, in every backend."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.blas import Dot22, Dot22Scalar, Gemm, Gemv

import loopax
from loopax.base.upstream.pytensor import Ger
from tests.support.compare import imported

A, B, N = pt.dscalar("a"), pt.dscalar("b"), pt.iscalar("n")
X, Y, Z = pt.dmatrices("x", "y", "z")
U, V = pt.dvectors("u", "v")
RNG = np.random.default_rng(0)
VALUES = {
    **dict.fromkeys([A, B], np.array(0.7)),
    X: RNG.normal(size=(2, 3)),
    Y: RNG.normal(size=(3, 4)),
    Z: RNG.normal(size=(2, 4)),
    U: RNG.normal(size=2),
    V: RNG.normal(size=3),
}
# The call, and what it means.
CALLS = {
    "dot22": (lambda: Dot22()(X, Y), X @ Y, [X, Y]),
    "dot22scalar": (lambda: Dot22Scalar()(X, Y, A), A * (X @ Y), [X, Y, A]),
    "gemm": (lambda: Gemm(inplace=False)(Z, A, X, Y, B), B * Z + A * (X @ Y), [Z, A, X, Y, B]),
    "gemv": (lambda: Gemv(inplace=False)(U, A, X, V, B), B * U + A * (X @ V), [U, A, X, V, B]),
}
if Ger.__module__ != "loopax.base.upstream.pytensor":  # 3.3 has none
    CALLS["ger"] = (
        lambda: Ger(destructive=False)(X, A, U, V),
        X + A * pt.outer(U, V),
        [X, A, U, V],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.both_stacks] * (n == "ger")) for n in CALLS]
)
def test_values_and_gradients(name):
    call, meaning, inputs = CALLS[name]
    values = [VALUES[v] for v in inputs]
    plain = [meaning, *pytensor.grad((meaning**2).sum(), inputs)]
    out, *slopes = pytensor.function(inputs, plain)(*values)
    every = tuple(range(len(inputs)))
    f = loopax.jaxify(inputs, call(), backend="numba", on_missing="raise")
    np.testing.assert_allclose(f(*values), out, strict=True)
    cost = loopax.jaxify(inputs, (call() ** 2).sum(), backend="numba", on_missing="raise")
    in_jax = loopax.jaxify(inputs, (call() ** 2).sum())
    for actual in loopax.grad(cost, every)(*values), jax.grad(in_jax, every)(*values):
        for g, slope in zip(actual, slopes, strict=True):
            np.testing.assert_allclose(g, slope)


@pytest.mark.parametrize("zero", [0.0, B], ids=["constant", "computed"])
def test_what_is_multiplied_with_zero_is_not_read(zero):
    """PyTensor gives memory that nobody wrote there."""
    out = Gemv(inplace=False)(pt.full((2,), np.nan), 1.0, X, V, zero)
    f = loopax.jaxify([X, V, B], out, backend="numba")
    np.testing.assert_allclose(f(VALUES[X], VALUES[V], 0.0), VALUES[X] @ VALUES[V])


# PyTensor 3.0's own native function.
@pytest.mark.filterwarnings("ignore:np.dot:numba.core.errors.NumbaPerformanceWarning")
@pytest.mark.parametrize("mode", ["NUMBA", "CVM"])
def test_a_compiled_function(mode):
    compiled = pytensor.function([X, V, U], 0.5 * U + 2.0 * (X @ V), mode=mode)
    values = [VALUES[v] for v in (X, V, U)]
    f = loopax.jaxify(compiled, backend="numba", on_missing="raise")
    np.testing.assert_allclose(f(*values), compiled(*values))


def test_no_call_is_left():
    graph = imported([U, A, X, V, B], [CALLS["gemv"][0]()]).graph
    assert not any(isinstance(node.op, Gemv) for node in graph.apply_nodes)
