"""Rules about derivatives that are not taken yet, one by one, and what is left after the pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import grad, hessian, jacobian, scan, vmap
from loopax.ir import Derivative, Grad, Jacobian, Pullback, Pushforward, evaluate
from loopax.ir.derivatives.lazy_grammar import has_derivatives
from loopax.lowering import lower
from loopax.lowering.derivatives.jacobian_reads import read_jacobians
from loopax.lowering.derivatives.simplify_derivatives import simplify_derivatives
from loopax.lowering.derivatives.take_derivatives import take_derivatives
from tests.support.compare import loops
from tests.support.kept import rewritten

N = 5
x = pt.dvector("x")
known = pt.tensor("known", shape=(N,), dtype="float64")
y, a = pt.dvector("y"), pt.dscalar("a")
X, Y = np.linspace(0.2, 1.1, N), np.linspace(-1.0, 1.0, N)
CASE = (X, X, Y, np.asarray(0.7))


def graph_of(*outputs):
    return FunctionGraph([x, known, y, a], list(outputs), clone=True)


def derivatives(graph):
    return [node.op for node in graph.toposort() if isinstance(node.op, Derivative)]


def energy(v):
    return pt.exp(v * y).sum() + (v**3).sum() * a


def band(v):
    return pt.sin(v) * pt.concatenate([v[1:], [1.0]])


def test_gradients_of_one_function_are_one():
    f = pt.exp(x * y).sum()
    by_x = Grad.of([x], [x], [x], [f])[1]
    both = FunctionGraph([x, y], [f], clone=True).freeze()
    first, second = Grad(both, [0]).make_node(x, y), Grad(both, [1]).make_node(x, y)
    graph = graph_of(first.outputs[1], second.outputs[1], first.outputs[0], by_x)
    actual = rewritten(graph, simplify_derivatives, CASE, rtol=1e-12)
    assert len(derivatives(actual)) == 1 or sorted(op.wrt for op in derivatives(actual))[-1] == (
        0,
        1,
    )
    rewritten(graph, take_derivatives, CASE, rtol=1e-12)


def test_what_does_not_depend_has_none():
    f = pt.exp(y).sum()
    graph = graph_of(*Grad.of([x], [x], [x], [f]), *Jacobian.of([x], [x], [x], [y * 2, f]))
    actual = rewritten(graph, simplify_derivatives, CASE)
    assert not derivatives(actual)


def test_the_hessian_of_what_is_affine_is_zero():
    graph = graph_of(hessian(lambda v: (y * v).sum() * a, lazy=True)(x))
    actual = rewritten(graph, simplify_derivatives, CASE)
    assert not derivatives(actual)


def test_terms_and_factors_that_do_not_depend():
    """Of a sum only what depends is differentiated; gradients of multiples are those of one function."""
    slope = grad(lambda v: pt.exp(v).sum() + pt.exp(y).sum(), lazy=True)(x)
    multiple = grad(lambda v: a * pt.exp(v).sum(), lazy=True)(x)
    graph = graph_of(slope, multiple)
    actual = rewritten(graph, simplify_derivatives, CASE, rtol=1e-12, idempotent=False)
    simplify_derivatives(actual)
    assert len(set(derivatives(actual))) == 1
    assert all(len(op.fgraph.toposort()) == 2 for op in derivatives(actual))


def test_what_nobody_reads_is_not_asked_for():
    by_x, _ = grad(lambda v, w: pt.exp(v * w).sum(), (0, 1), lazy=True)(x, y)
    (op,) = derivatives(rewritten(graph_of(by_x), simplify_derivatives, CASE, rtol=1e-12))
    assert op.wrt == (0,)


def test_a_batch_of_gradients_is_the_gradient_of_a_sum():
    rows = vmap(grad(lambda v: pt.exp(v).sum() * a, lazy=True))(pt.stack([x, y]))
    graph = graph_of(rows)
    (op,) = derivatives(graph)
    assert isinstance(op, Grad) and op.fgraph.inputs[0].type.ndim == 2
    actual = rewritten(graph, take_derivatives, CASE, rtol=1e-12)
    np.testing.assert_allclose(evaluate(actual, *CASE)[0], 0.7 * np.exp(np.stack([X, Y])))


@pytest.mark.parametrize("f", [jacobian(band, lazy=True), hessian(energy, lazy=True)])
def test_a_jacobian_that_is_multiplied_is_not_built(f):
    matrix = f(x)
    graph = graph_of(matrix @ y, y @ matrix, matrix.T @ y, pt.dot(matrix, x))
    actual = rewritten(graph, read_jacobians, CASE, rtol=1e-11, atol=1e-13)
    kinds = {type(op) for op in derivatives(actual)}
    assert Jacobian not in kinds and {Pushforward, Pullback} <= kinds
    rewritten(graph_of(matrix @ y, y @ matrix), take_derivatives, CASE, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("at", [x, known], ids=["open", "known"])
@pytest.mark.parametrize("f", [jacobian(band, lazy=True), hessian(energy, lazy=True)])
def test_a_jacobian_that_is_read_by_its_diagonal_is_not_built(at, f):
    """By few products where the lengths are known, else one at a time."""
    graph = graph_of(pt.diagonal(f(at)))
    actual = rewritten(graph, take_derivatives, CASE, rtol=1e-11, atol=1e-13)
    square = [
        v
        for node in actual.toposort()
        for v in node.outputs
        if getattr(v.type, "ndim", 0) == 2 and v.type.shape in ((N, N), (None, None))
    ]
    assert not square or at is x and loops(actual)


def test_functions_are_rewritten_before_they_are_differentiated():
    """The logarithm of a probability that is one but for rounding: eagerly the gradient is nan."""

    def f(v):
        return pt.log(1 - pt.exp(v)).sum() + pt.log(pt.sum(pt.exp(v + 1000)))

    small = np.array([-1e-18, -1e-20, -2.0, -1.0, -3.0])
    case = (small, small, Y, np.asarray(0.7))
    lazy = graph_of(grad(f, lazy=True)(x))
    lower(lazy)
    with np.errstate(all="ignore"):
        (actual,) = evaluate(lazy, *case)
        (plain,) = evaluate(graph_of(grad(f)(x)), *case)
    wanted = -np.exp(small) / -np.expm1(small) + np.asarray(jax.nn.softmax(jnp.asarray(small)))
    assert not np.isfinite(plain).all()
    np.testing.assert_allclose(actual, wanted, rtol=1e-12)


def test_what_rewrites_have_written_has_a_derivative():
    """PyTensor writes the logarithm of a determinant as an op without one."""
    slope = grad(lambda v: pt.log(pt.abs(pt.linalg.det(pt.diag(v) + 0.1))), lazy=True)(x)
    actual = rewritten(graph_of(slope), take_derivatives, CASE, rtol=1e-10)
    wanted = np.diag(np.linalg.inv(np.diag(X) + 0.1))
    np.testing.assert_allclose(evaluate(actual, *CASE)[0], wanted, rtol=1e-10)


def test_in_a_step_and_in_a_function_of_it():
    def step(c, r):
        return c - 0.1 * grad(lambda v: pt.exp(v * r).sum(), lazy=True)(c), None

    final, _ = scan(step, a, x)
    slope = grad(lambda v: scan(step, v, x)[0] ** 2, lazy=True)(a)
    graph = graph_of(final, slope)
    assert has_derivatives(graph)
    actual = rewritten(graph, take_derivatives, CASE, rtol=1e-12)
    assert not has_derivatives(actual)
    lower(actual)

    def hand(v):
        return jax.lax.scan(lambda c, r: (c - 0.1 * r * jnp.exp(c * r), None), v, X)[0]

    np.testing.assert_allclose(
        evaluate(actual, *CASE), [hand(0.7), jax.grad(lambda v: hand(v) ** 2)(0.7)], rtol=1e-12
    )


def test_orders_of_a_loop_stay_two_loops():
    def f(v):
        return scan(lambda c, r: (pt.tanh(c * r) + v, None), v, x)[0]

    g = f
    for _ in range(2):
        g = grad(g, lazy=True)
    graph = graph_of(g(a))
    lower(graph)
    assert len(loops(graph)) == 2


def test_in_pytensors_modes():
    actual = pytensor.function([x, y, a], grad(energy, lazy=True)(x), mode="FAST_COMPILE")
    assert not has_derivatives(actual.maker.fgraph)
    np.testing.assert_allclose(actual(X, Y, 0.7), Y * np.exp(X * Y) + 2.1 * X**2)
