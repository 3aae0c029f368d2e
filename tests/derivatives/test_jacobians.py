"""`loopax.jacobian` and `hessian`, of functions, and of what `jaxify` returns."""

import inspect
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, StatefulFunctionError, hessian, jacobian, jaxify, scan, vmap
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.assorted_loops import PLAIN
from tests.support.compare import assert_trees_close
from tests.support.ops import SameType

X = np.linspace(0.2, 1.1, 5)
M = np.arange(6.0).reshape(2, 3) / 5
x = pt.dvector("x")
NATIVE = InterpretedFunction.backend_name


def rolled(v, a):
    final, ys = scan(lambda c, r: (pt.sin(c * r) + a, {"y": c * r}), pt.constant(0.3), v)
    return {"final": final, "rows": ys["y"]}


def by_hand(v, a):
    final, ys = jax.lax.scan(lambda c, r: (jnp.sin(c * r) + a, {"y": c * r}), 0.3, v)
    return {"final": final, "rows": ys["y"]}


def cost(v, a):
    actual = rolled(v, a)
    return actual["final"] ** 2 + (actual["rows"] * a).sum()


def hand_cost(v, a):
    actual = by_hand(v, a)
    return actual["final"] ** 2 + (actual["rows"] * a).sum()


def run(tree):
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda v: hasattr(v, "owner"))
    return jax.tree.unflatten(structure, pytensor.function([], leaves, mode=PLAIN)())


agrees = partial(assert_trees_close, rtol=1e-10, atol=1e-13)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1, -2)])
def test_the_jacobian_is_that_of_jax(argnums):
    agrees(run(jacobian(rolled, argnums)(X, 0.7)), jax.jacobian(by_hand, argnums)(X, 0.7))


@pytest.mark.slow
@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_the_hessian_is_that_of_jax(argnums):
    agrees(run(hessian(cost, argnums)(X, 0.7)), jax.hessian(hand_cost, argnums)(X, 0.7))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("static", [True, False], ids=["lengths known", "open"])
@pytest.mark.parametrize("wide", [True, False])
def test_matrices_of_matrices(static, wide):
    """By columns where there are fewer, by rows where there are fewer or nobody knows."""

    def f(m):
        return pt.exp(m[:, :2] @ m) if wide else pt.sin(m).sum(axis=0) * m[0]

    def hand(m):
        return jnp.exp(m[:, :2] @ m) if wide else jnp.sin(m).sum(axis=0) * m[0]

    at = pt.tensor("at", shape=M.shape if static else (None, None), dtype="float64")
    actual = pytensor.function([at], jacobian(f)(at), mode=PLAIN)(M)
    agrees(actual, np.asarray(jax.jacobian(hand)(M)))


@pytest.mark.slow
def test_a_hessian_by_a_matrix_and_of_a_batch():
    def f(m):
        return (pt.exp(m[0] * m[1]) + m[0] ** 3).sum()

    def hand(m):
        return (jnp.exp(m[0] * m[1]) + m[0] ** 3).sum()

    agrees(run(hessian(f)(M)), np.asarray(jax.hessian(hand)(M)))
    many = np.stack([M, M + 0.1])
    agrees(run(vmap(hessian(f))(many)), np.asarray(jax.vmap(jax.hessian(hand))(many)))


def test_what_does_not_depend_is_zero():
    by_a, by_b = run(jacobian(lambda a, b: pt.exp(a), (0, 1))(X, X[:2]))
    agrees(by_a, np.diag(np.exp(X)))
    agrees(by_b, np.zeros((5, 2)))
    agrees(run(hessian(lambda a: 2 * a.sum())(X)), np.zeros((5, 5)))


def test_an_op_of_a_user():
    at = pt.tensor("at", shape=(3,), dtype="float64")
    agrees(pytensor.function([at], jacobian(Square())(at), mode=PLAIN)(X[:3]), np.diag(2 * X[:3]))


class Square(SameType):
    """An op of which there is a ``perform`` and a pullback."""

    __name__ = "square"

    def perform(self, node, inputs, storage):
        storage[0][0] = inputs[0] ** 2

    def pullback(self, inputs, outputs, cotangents):
        return [2 * inputs[0] * cotangents[0]]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", NATIVE])
@pytest.mark.parametrize("traced", [True, False], ids=["traced", "graph"])
def test_of_what_jaxify_returns(backend, traced):
    scale = pytensor.shared(np.float64(2.0), name="scale")

    def f(v):
        return pt.exp(v[1:] * v[:-1]) * scale

    def hand(v):
        return jnp.exp(v[1:] * v[:-1]) * 2.0

    g = jaxify(f, backend=backend) if traced else jaxify([x], f(x), backend=backend, name="f")
    whole = jacobian(g)
    assert whole.__name__ == "f"
    for values in (X, X[:3]):
        expected = jax.jacobian(hand)(values)
        np.testing.assert_allclose(whole(values), expected, rtol=1e-10)
    if backend == "jax":
        np.testing.assert_allclose(jax.jit(whole)(X), jax.jacobian(hand)(X), rtol=1e-10)
    h = jaxify(lambda v: f(v).sum(), backend=backend)
    expected = jax.hessian(lambda v: hand(v).sum())(X)
    np.testing.assert_allclose(hessian(h)(X), expected, rtol=1e-10, atol=1e-14)


def test_single_precision():
    narrow = pt.tensor("narrow", shape=(4,), dtype="float32")
    assert jacobian(lambda v: v[1:] ** 2)(narrow).type.dtype == "float32"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: jacobian(lambda v: v > 0)(X),
            "jacobian of result, which is .*bool.*only tensors of floats",
        ),
        (lambda: jacobian(lambda v: v)(np.arange(3)), r"jacobian with respect to args\[0\]"),
        (lambda: hessian(lambda v: v)(X), "one float scalar"),
        (lambda: jacobian(lambda v: v, 1)(X), "argnums has 1"),
    ],
)
def test_what_is_wrong_is_said(call, match):
    with pytest.raises(LoopTypeError, match=match):
        call()


def test_what_is_no_function_or_has_state_is_said():
    with pytest.raises(TypeError, match=re.escape("loopax.hessian takes a function")):
        hessian(x)
    n = pytensor.shared(np.float64(1.0), name="n")
    f = jaxify([x], x * n, updates={n: n + 1}, backend="numba")
    with pytest.raises(StatefulFunctionError, match="updates the shared variables n"):
        jacobian(f)
    assert "sparse" in inspect.signature(jacobian).parameters
