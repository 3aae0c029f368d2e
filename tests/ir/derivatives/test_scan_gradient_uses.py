"""Gradients of loops: with respect to what, by PyTensor's other names, and what they keep."""

from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import cond, jaxify, scan, while_loop
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.remove_unused import remove_unused
from tests.support.assorted_loops import PLAIN, M, V, X, a, close, m, s, slopes, v, x
from tests.support.compare import FAST_RUN, loops

# -- with respect to what ----------------------------------------------------------------------------


def value(outputs: Any) -> Any:
    f = pytensor.function([x, s, a, v, m], outputs, mode=PLAIN, on_unused_input="ignore")
    return f(X, 0.6, 0.7, V, M)


def along_x(c, r):
    return pt.sin(a * c) + r, c * r


def test_elements_of_a_sequence():
    """An element that is taken from it, and those that it is made of."""
    last = x[3]
    final, ys = scan(along_x, last, pt.concatenate([x[1:] * last, x[:1]]))
    cost = final**2 + ys[1] + x[2]
    f = pytensor.function([x, a], cost, mode=PLAIN)
    actual, by_last = value(pytensor.grad(cost, [x, last]))
    np.testing.assert_allclose(actual, slopes(lambda x: [f(x, 0.7)], [X])[0][0], rtol=1e-8)
    # x[3] is used as `last`, and in x[1:].
    others = pytensor.grad(cost, x, consider_constant=[last])
    np.testing.assert_allclose(actual[3] - value(others)[3], by_last, rtol=1e-12)


def test_what_a_loop_makes():
    """A final state and a trace that another loop reads."""
    final, ys = scan(along_x, s, x)
    cost, _ = scan(lambda c, r: (c + a * r**2, None), final, ys)
    by_final, by_trace, by_s = value(pytensor.grad(cost, [final, ys, s]))
    np.testing.assert_allclose(by_final, 1.0)
    np.testing.assert_allclose(by_trace, 1.4 * value(ys), rtol=1e-12)
    f = pytensor.function([x, s, a], cost, mode=PLAIN)
    np.testing.assert_allclose(by_s, slopes(lambda s: [f(X, s, 0.7)], [0.6])[0][0], rtol=1e-8)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [{}, {"checkpoint": 2}, {"truncate_gradient": 9}, {"checkpoint": 2, "reverse": True}],
    ids=str,
)
def test_twice_with_respect_to_what_was_computed(options):
    """A second derivative by a variable that is no root, as it would be by a root."""
    made = 2 * a
    final, ys = scan(lambda c, r: (pt.sin(made * c) + r, c * r), s, x, **options)
    cost = final**2 + (ys**3).sum()
    by_made = pytensor.grad(pytensor.grad(cost, made), made)
    by_root = pytensor.grad(pytensor.grad(cost, a), a)
    np.testing.assert_allclose(4 * value(by_made), value(by_root), rtol=1e-12)


def test_by_a_cotangent_that_was_computed():
    """The product with the Jacobian, as the pullback's pullback: PyTensor's way to forward mode."""
    for loop in (
        lambda: scan(along_x, s, x, checkpoint=2)[0],
        lambda: scan(lambda c, r: (c + a * r**2, None, c > 1.0), s, x)[0],
        lambda: cond(s > 0, lambda: a * s, lambda: s**2),
    ):
        final = loop()
        cotangent = final.zeros_like()
        slope = pytensor.gradient.pullback(final, s, cotangent)
        again = pytensor.grad(slope, cotangent)
        np.testing.assert_allclose(value(again), value(pytensor.grad(final, s)), rtol=1e-12)


def test_shared_variables_in_closures():
    start, rows, weight = (
        pytensor.shared(np.asarray(z), name) for name, z in zip("srw", (0.6, X, 0.7), strict=True)
    )
    final, ys = scan(lambda c, r: (pt.sin(weight * c) + r, c * r), start, rows)
    actual = value(pytensor.grad(final**2 + (ys**3).sum(), [start, rows, weight]))
    final, ys = scan(along_x, s, x)
    expected = value(pytensor.grad(final**2 + (ys**3).sum(), [s, x, a]))
    for f, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-14)


def test_one_output_of_the_step_is_another():
    """PyTensor replaces the gradient of a variable whose gradient it is given."""
    final, ys = scan(lambda c, _: (2 * c, 2 * c), s, length=3)
    assert value(pytensor.grad(final + ys.sum(), s)) == 8 + 2 + 4 + 8


@pytest.mark.slow
def test_a_gradient_has_the_type_of_what_it_is_a_gradient_of():
    """Single precision, lengths that are known, axes of length 1."""
    narrow = pt.tensor("narrow", shape=(1, 2), dtype="float32")
    rows = pt.tensor("rows", shape=(4, 2), dtype="float64")
    one = pt.tensor("one", shape=(1,), dtype="float64")

    def step(c, r):
        c = pt.tanh(c * narrow + r)
        return c, (c.sum(axis=1), c[:1].astype("float32"))

    final, ys = scan(step, m, rows)
    other, _ = scan(lambda c, r: (c * r, None), s, one)
    cost = (final**2).sum() + (ys[0] ** 2).sum() + ys[1].sum() + other
    wrt = [narrow, rows, m, one]
    first = pytensor.grad(cost, wrt)
    second = pytensor.grad(sum((g**2).sum() for g in first), wrt)
    for g, w in zip([*first, *second], wrt * 2, strict=True):
        assert w.type.is_super(g.type)
    values = [np.full((1, 2), 0.5, "float32"), np.outer(X, V), M, X[:1], 0.6]
    actual = pytensor.function([*wrt, s], [*first, *second], mode=PLAIN)(*values)
    expected = jaxify([*wrt, s], [*first, *second])(*values)
    for g, e, w in zip(actual, expected, wrt * 2, strict=True):
        assert (g.dtype, g.ndim) == (w.dtype, w.ndim)
        np.testing.assert_allclose(g, e, rtol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options", [{}, {"reverse": True}, {"checkpoint": 2}, {"checkpoint": "sqrt"}]
)
def test_a_generator_is_carried_and_each_step_draws_again_what_it_drew(options):
    rng = random_generator_type("rng")

    def step(c, r):
        state, z = c
        state, noise = pt.random.normal(rng=state, return_next_rng=True)
        return (state, pt.sin(z * r) + a * noise), noise * z

    (_, final), ys = scan(step, (rng, s), x, **options)
    cost = final**2 + ys.sum()
    gradient = pytensor.grad(cost, [x, s, a])
    f = pytensor.function([rng, x, s, a], [cost, *gradient], mode=PLAIN)

    def seeded(*args):
        return f(np.random.default_rng(4), *args)

    cost, *actual = seeded(X, 0.6, 0.7)
    close([actual], slopes(lambda *args: seeded(*args)[:1], [X, 0.6, 0.7]), rtol=1e-7)


# -- by PyTensor's other names -----------------------------------------------------------------------


@pytest.mark.slow
def test_jacobian_hessian_and_products_with_them():
    final, ys = scan(along_x, s, x)
    cost = final**2 + (ys**3).sum()
    f = jaxify([x, s, a], ys)
    c = jaxify([x, s, a], cost)
    at = (X, 0.6, 0.7)
    jacobian = np.asarray(jax.jacobian(f)(*at))
    hessian = np.asarray(jax.hessian(c)(*at))
    direction = np.array([1.0, -2.0, 0.5, 0.3])
    for vectorize in (False, True):
        actual = pytensor.gradient.jacobian(ys, [x, s], vectorize=vectorize)
        np.testing.assert_allclose(value(actual[0]), jacobian, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(value(actual[1]), jax.jacobian(f, 1)(*at), rtol=1e-10)
    actual = pytensor.gradient.hessian(cost, x)
    np.testing.assert_allclose(value(actual), hessian, rtol=1e-10, atol=1e-12)
    actual = pytensor.gradient.hessian_vector_product(cost, [x], [pt.constant(direction)])
    np.testing.assert_allclose(value(actual)[0], hessian @ direction, rtol=1e-10)
    actual = pytensor.gradient.pullback(ys, x, pt.constant(direction))
    np.testing.assert_allclose(value(actual), direction @ jacobian, rtol=1e-10)
    for own in (False, True):
        actual = pytensor.gradient.pushforward(
            ys, x, pt.constant(direction), use_op_pushforward=own
        )
        np.testing.assert_allclose(value(actual), jacobian @ direction, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    "loop",
    [
        lambda x, s, a: scan(lambda c, r: (pt.tanh(a * c) + r, c * r), s, x)[1],
        lambda x, s, a: scan(lambda c, r: (pt.tanh(a * c) + r, None), s, x, checkpoint=2)[0],
        lambda x, s, a: scan(lambda c, r: (c + a * r**2, c * r, c > 1.0), s, x)[1],
        lambda x, s, a: while_loop(lambda c: c < 9, lambda c: a * c + x.sum() + 2, s, max_steps=5),
        lambda x, s, a: cond(s > 0, lambda: (x * a).sum() ** 2, lambda: s**2),
    ],
    ids=["trace", "checkpoint", "stopping trace", "while loop", "cond"],
)
def test_verify_grad(loop):
    pytensor.gradient.verify_grad(
        loop, [X, np.array(0.6), np.array(0.7)], rng=np.random.default_rng(1), mode=PLAIN
    )


# -- what it costs -----------------------------------------------------------------------------------


def test_the_forward_loop_keeps_states_and_nothing_else():
    def step(c, r):
        c = pt.tanh(m @ pt.exp(-c * r) + pt.sin(a * c))
        return c, None

    final, _ = scan(step, v, x)
    gradient = pytensor.grad((final**2).sum(), [v, x, m, a])
    forward, backward = _forward_and_backward(gradient)
    assert [out.type.ndim for out in forward.op.outs.ys] == [1]  # one state
    assert {w.owner.op.n_ys for w in backward.inputs if w.owner and w.owner.op == forward.op} == {1}
    read = [w.type.ndim for w in backward.op.args.rows]
    assert sorted(read) == [0, 1]  # the row and the state


def test_a_trace_of_states_is_what_the_gradient_reads():
    """No second loop is left for the states where the loop emits them, before or after the step."""
    for emit in (lambda old, new: old, lambda old, new: new):

        def step(c, r, emit=emit):
            new = pt.sin(a * c) + r
            return new, emit(c, new)

        for reverse in (False, True):
            final, ys = scan(step, s, x, reverse=reverse)
            gradient = pytensor.grad(final**2 + ys.sum(), [s, x, a])
            graph = FunctionGraph([x, s, a], gradient, clone=True)
            assert len(loops(graph)) == (2 if emit(0, 1) == 0 else 3)
            merge_loops(graph)
            assert len(loops(graph)) == 2


def test_a_loop_is_not_run_for_a_gradient_that_reads_no_state():
    final, _ = scan(lambda c, r: (a * c + r, None), s, x)
    gradient = pytensor.grad(final, [s, x])
    f = pytensor.function([x, s, a], gradient, mode=FAST_RUN, on_unused_input="ignore")
    (backward,) = loops(f.maker.fgraph)
    assert not backward.op.n_seqs
    np.testing.assert_allclose(f(X, 0.6, 0.5)[1], [0.125, 0.25, 0.5, 1.0])


def _forward_and_backward(gradient: Any) -> Any:
    graph = FunctionGraph(outputs=gradient, clone=True)
    remove_unused(graph)
    nodes = loops(graph)
    backward = [node for node in nodes if str(node.op).startswith("Scan{pullback")]
    (forward,) = {node for node in nodes if node not in backward and node.op.n_ys}
    assert len(backward) == 1
    return forward, backward[0]
