"""Derivatives that are not taken yet: what they mean, whoever runs them, and of what order they are."""

import pickle
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph

import loopax
from loopax import (
    explain,
    grad,
    hessian,
    hvp,
    jacobian,
    jaxify,
    jvp,
    scan,
    value_and_grad,
    vjp,
    vmap,
)
from loopax.ir import Grad, Jacobian, Pullback, Pushforward, check, evaluate, pformat
from loopax.ir.derivatives.lazy import Derivative
from loopax.ir.derivatives.lazy_grammar import expand, has_derivatives
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.compare import FAST_COMPILE, loops

pytestmark = pytest.mark.one_stack

X, T = np.linspace(0.2, 1.1, 4), np.array([1.0, -2.0, 0.5, 0.0])
x, a = pt.dvector("x"), pt.dscalar("a")


def cost(v, b):
    final, rows = scan(lambda c, r: (pt.tanh(c * r) + b, c * r), pt.constant(0.3), v)
    return final**2 + (rows * v).sum()


def hand(v, b):
    final, rows = jax.lax.scan(lambda c, r: (jnp.tanh(c * r) + b, c * r), 0.3, v)
    return final**2 + (rows * v).sum()


@cache
def wanted():
    return jax.jit(by_jax)(X)


def by_jax(v):
    """Of the loop written by hand."""
    slope, h = jax.grad(hand)(v, 0.7), jax.hessian(hand)(v, 0.7)
    twice = jax.grad(lambda v: jnp.vdot(jax.jvp(jax.grad(hand), (v, 0.7), (T, 0.0))[1], T))
    return {
        "gradient": slope,
        "value and gradient": jax.value_and_grad(hand, (0, 1))(v, 0.7),
        "hessian": h,
        "product": h @ T,
        "jacobian": jax.jacobian(jax.grad(hand, 1))(v, 0.7),
        "forward": jnp.vdot(slope, T),
        "backward": 2 * slope,
        "third": jax.jvp(twice, (v,), (T,))[1],
        "of a gradient": jax.grad(lambda v: jax.grad(hand)(v, 0.7)[1] ** 2)(v),
        "batch": jax.vmap(jax.grad(hand), (0, None))(jnp.stack([v, 2 * v]), 0.7),
    }


@cache
def written(lazy):
    f, options = lambda v: cost(v, a), {"lazy": lazy}
    slope = grad(f, **options)(x)
    return {
        "gradient": slope,
        "value and gradient": [*value_and_grad(cost, (0, 1), **options)(x, a)[:1]]
        + [*value_and_grad(cost, (0, 1), **options)(x, a)[1]],
        "hessian": hessian(f, **options)(x),
        "product": hvp(f, (x,), (T,), **options),
        "jacobian": jacobian(grad(cost, 1, **options), **options)(x, a),
        "forward": jvp(f, (x,), (T,), **options)[1],
        "backward": vjp(f, x, **options)[1](2.0)[0],
        "third": hvp(lambda v: (hvp(f, (v,), (T,), **options) * T).sum(), (x,), (T,), **options),
        "of a gradient": pytensor.grad(slope[1] ** 2, x),
        "batch": vmap(grad(cost, **options), (0, None))(pt.stack([x, 2 * x]), a),
    }


def up_to_second(named):
    """All but the third derivative, which takes as long as the others together."""
    return {name: value for name, value in named.items() if name != "third"}


def leaves(named):
    return jax.tree.leaves(named, is_leaf=lambda v: hasattr(v, "owner"))


def agree(actual, expected):
    for f, e in zip(actual, jax.tree.leaves(expected), strict=True):
        assert (np.shape(f), np.asarray(f).dtype) == (np.shape(e), np.asarray(e).dtype)
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-12)


def graph_of(outputs):
    return FunctionGraph([x, a], outputs, clone=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FAST_COMPILE, Mode("py", None)], ids=["FAST_COMPILE", "None"])
def test_in_pytensors_modes(mode):
    """Also in the one that rewrites next to nothing."""
    run = pytensor.function([x, a], leaves(up_to_second(written(True))), mode=mode)
    agree(run(X, 0.7), up_to_second(wanted()))
    assert not has_derivatives(run.maker.fgraph)


def test_run_by_itself():
    """It runs the function that it is."""
    node = grad(lambda v: cost(v, a), lazy=True)(x).owner
    storage = [[None], [None]]
    node.op.perform(node, [X, np.asarray(0.7)], storage)
    np.testing.assert_allclose(storage[1][0], wanted()["gradient"], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["FAST_RUN", "JAX", "NUMBA", "LOOPAX"])
def test_in_all_other_modes(mode):
    names = ["hessian", "third", "batch"]
    outputs = leaves([written(True)[name] for name in names])
    run = pytensor.function([x, a], outputs, mode=mode)
    assert not has_derivatives(run.maker.fgraph)
    for f, name in zip(run(X, 0.7), names, strict=True):
        np.testing.assert_allclose(f, wanted()[name], rtol=1e-9, atol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["jax", InterpretedFunction.backend_name])
def test_in_each_backend(backend):
    f = loopax.jaxify([x, a], leaves(up_to_second(written(True))), backend=backend)
    agree(f(X, 0.7), up_to_second(wanted()))


def test_they_are_explained():
    explained = loopax.explain([x, a], written(True)["product"]).full
    assert "Grad{" in explained and "take_derivatives" in explained


@pytest.mark.slow
def test_values_and_text_and_pickle():
    graph = graph_of(leaves(written(True)))
    check(graph)
    agree(evaluate(graph, X, np.asarray(0.7)), wanted())
    assert re.search(r"Grad\{.*wrt=\[0\]\}\(.*\n    body\(", pformat(graph))
    again = pickle.loads(pickle.dumps(graph))
    assert pformat(again) == pformat(graph)
    agree(evaluate(again, X, np.asarray(0.7)), wanted())


@pytest.mark.slow
def test_expanded_it_is_the_eager_one():
    """To the last bit."""
    lazy, eager = (graph_of(leaves(written(kind))) for kind in (True, False))
    expand(lazy)
    check(lazy)
    assert not has_derivatives(lazy)
    for actual, wanted in zip(
        evaluate(lazy, X, np.asarray(0.7)), evaluate(eager, X, np.asarray(0.7)), strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-13, atol=1e-15)


def test_a_hessian_is_never_built_where_a_product_is_meant():
    slope = grad(lambda v: cost(v, a), lazy=True)(x)
    actual = pytensor.grad((slope * T).sum(), x)
    ops = [node.op for node in graph_of([actual]).apply_nodes if isinstance(node.op, Derivative)]
    assert not any(isinstance(op, Jacobian) for op in ops)
    assert any(isinstance(op, Pushforward) for op in ops)


def test_the_gradient_of_what_is_affine_is_connected_to_nothing():
    slope = grad(lambda v: (a**2 * v[::-1]).sum(), lazy=True)(x)
    with pytest.raises(pytensor.gradient.DisconnectedInputError):
        pytensor.grad(slope.sum(), x)
    by_a = pytensor.grad(slope.sum(), a)
    np.testing.assert_allclose(by_a.eval({x: X, a: 3.0}), 6.0 * len(X))


def test_what_a_closure_has_becomes_an_input():
    shared = pytensor.shared(np.float64(2.0), name="shared")
    slope = grad(lambda v: (v**2).sum() * shared * a, lazy=True)(x)
    assert isinstance(slope.owner.op, Grad) and set(slope.owner.inputs) == {x, a, shared}
    np.testing.assert_allclose(slope.eval({x: X, a: 3.0}), 12 * X)


def test_equal_functions_make_equal_ops():
    one, other = (grad(lambda v: pt.exp(v).sum(), lazy=True)(x).owner.op for _ in range(2))
    assert one == other and hash(one) == hash(other)
    assert one != one.with_wrt([]) and str(one).startswith("Grad{")


def test_a_derivative_has_the_dtype_of_its_variable():
    """PyTensor's of a float32 that is compared with an int64 is a float64."""
    a, n = pt.fscalar("a"), pt.lscalar("n")
    out = pt.where(a < n, a * 2, 0)
    f = loopax.jaxify([a, n], out, backend="numba")
    slope = grad(f)(np.float32(1), 2)
    assert slope == 2.0 and slope.dtype == "float32"


@pytest.mark.parametrize("kind", [Pushforward, Pullback])
def test_the_derivative_of_a_product_beside_an_integer_output(kind):
    t, r = pt.dvector("t"), pt.dvector("r")
    outputs = [r**3, pt.floor(r).astype("int64")]
    seeds = [t] if kind is Pushforward else [t, pt.ones_like(t, dtype="int64")]
    product = kind.of([r], [x], [r], outputs, seeds)[2]
    slope = pytensor.grad(product.sum(), x)
    np.testing.assert_allclose(slope.eval({x: X, t: T}, mode=FAST_COMPILE), 6 * X * T)


# -- the default ---------------------------------------------------------------------------------------


def of_a_loop(v):
    final, ys = loopax.scan(lambda c, r: (pt.tanh(0.7 * c) + r, c * r), 0.5, v)
    return final + pt.log(1 - pt.exp(-(ys**2) - 1)).sum()


BY_DEFAULT = {
    "grad": (lambda f, x, **how: loopax.grad(f, **how)(x), Grad),
    "value_and_grad": (lambda f, x, **how: loopax.value_and_grad(f, **how)(x)[1], Grad),
    "hessian": (lambda f, x, **how: loopax.hessian(f, **how)(x), Jacobian),
    "jacobian": (lambda f, x, **how: loopax.jacobian(lambda x: x * f(x), **how)(x), Jacobian),
    "jvp": (lambda f, x, **how: loopax.jvp(f, (x,), (x,), **how)[1], Pushforward),
    "hvp": (lambda f, x, **how: loopax.hvp(f, (x,), (x,), **how), Pushforward),
    "vjp": (lambda f, x, **how: loopax.vjp(f, x, **how)[1](1.0)[0], Pullback),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", BY_DEFAULT)
def test_a_derivative_in_a_graph_is_left_there_by_default(name):
    make, op = BY_DEFAULT[name]
    x = pt.dvector("x")
    lazy, eager = make(of_a_loop, x), make(of_a_loop, x, lazy=False)

    def ops(out):
        return {type(node.op) for node in FunctionGraph(outputs=[out], clone=True).apply_nodes}

    assert op in ops(lazy) and not {o for o in ops(eager) if issubclass(o, Derivative)}
    at = np.linspace(0.1, 1.0, 5)
    actual = [pytensor.function([x], out, mode="FAST_COMPILE")(at) for out in (lazy, eager)]
    np.testing.assert_allclose(*actual, rtol=1e-9)
    np.testing.assert_allclose(jaxify([x], lazy)(at), actual[0], rtol=1e-9)


def test_it_prints_the_function():
    x = pt.dvector("x")
    slope = loopax.grad(of_a_loop)(x)
    text = pytensor.dprint(slope, file="str")
    assert text.startswith("Grad{of_a_loop, wrt=[0]}") and "Tanh" in text
    text = pformat(FunctionGraph([x], [slope], clone=True))
    assert "Grad{of_a_loop, wrt=[0]}(x)" in text and "tanh" in text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("order", [1, 2])
def test_it_leaves_as_many_loops_as_an_eager_one(order):
    x = pt.dvector("x")

    def outputs(**how):
        if order == 1:
            return [of_a_loop(x), loopax.grad(of_a_loop, **how)(x)]
        squared = lambda v: (loopax.grad(of_a_loop, **how)(v) ** 2).sum()  # noqa: E731
        return [of_a_loop(x), loopax.grad(squared, **how)(x)]

    lazy, eager = (explain([x], outputs(**how)).counts_lowered for how in ({}, {"lazy": False}))
    assert lazy.loops <= eager.loops and lazy.inside <= eager.inside
    if order == 1:  # and in PyTensor's own modes
        compiled = pytensor.function([x], outputs(), mode="FAST_RUN").maker.fgraph
        assert len(loops(compiled)) == 2
