"""`AssociativeScan`: its loop, and the same in JAX in any grouping."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph

from loopax import LoopTypeError, jaxify
from loopax.extensions.parallel.associative_scan import AssociativeScan
from loopax.ir import check, evaluate
from loopax.lowering import lower

x, a = pt.dtensor3("x"), pt.dmatrix("a")
RNG = np.random.default_rng(0)
X, A = RNG.normal(size=(40, 2, 2)) * 0.6, RNG.normal(size=(40, 2))


def affine(first, second):
    (m, b), (n, c) = first, second
    return [n @ m, n @ b + c]


def prefixes(reverse=False):
    return AssociativeScan.of(affine, [x, a], reverse=reverse).make_node(x, a).outputs


def by_hand(xs, rows, reverse):
    m, b = np.eye(2), np.zeros(2)
    actual = [None] * len(xs)
    for k in reversed(range(len(xs))) if reverse else range(len(xs)):
        m, b = xs[k] @ m, xs[k] @ b + rows[k]
        actual[k] = m, b
    return [np.array(part) for part in zip(*actual, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_its_values_everywhere(reverse):
    outs = prefixes(reverse)
    expected = by_hand(X, A, reverse)
    graph = FunctionGraph([x, a], outs, clone=True)
    check(graph)
    actual = [evaluate(graph, X, A), jaxify([x, a], outs)(X, A)]
    actual += [pytensor.function([x, a], outs, mode="FAST_COMPILE")(X, A)]
    actual += [jaxify([x, a], outs, backend="numba")(X, A)]
    for values in actual:
        for value, want in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, want, rtol=1e-10, atol=1e-13)


def test_one_element_and_a_few():
    f = jaxify([x, a], prefixes())
    for n in (1, 2, 3):
        for value, want in zip(f(X[:n], A[:n]), by_hand(X[:n], A[:n], False), strict=True):
            np.testing.assert_allclose(value, want, rtol=1e-12)


@pytest.mark.slow
def test_its_derivatives():
    loss = (pt.sin(prefixes()[1])).sum()
    in_the_ir = jaxify([x, a], pytensor.grad(loss, [x, a]))(X, A)
    f = jaxify([x, a], loss)
    by_jax = jax.jit(jax.grad(f, (0, 1)))(X, A)
    native = jaxify([x, a], pytensor.grad(loss, [x, a]), backend="numba")(X, A)
    for one, two, three in zip(in_the_ir, by_jax, native, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(one, three, rtol=1e-9, atol=1e-11)


def test_it_stays_where_some_of_its_outputs_are_read():
    graph = FunctionGraph([x, a], prefixes()[1:], clone=True)
    lower(graph)
    assert any(isinstance(node.op, AssociativeScan) for node in graph.apply_nodes)
    f = jaxify([x, a], prefixes()[1])
    assert "length=40" not in str(jax.make_jaxpr(f)(X, A))


@pytest.mark.slow
def test_a_batch_of_them():
    xs, rows = pt.dtensor4("xs"), pt.dtensor3("rows")
    outs = vectorize_graph(prefixes(), {x: xs, a: rows})
    both = np.stack([X, X[::-1]]), np.stack([A, -A])
    actual = jaxify([xs, rows], outs)(*both)
    mapped = jax.vmap(jaxify([x, a], prefixes()))(*both)
    for k in range(2):
        for value, other, want in zip(
            actual, mapped, by_hand(both[0][k], both[1][k], False), strict=True
        ):
            np.testing.assert_allclose(value[k], want, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(jnp.asarray(other)[k], want, rtol=1e-9, atol=1e-12)


def test_elements_of_another_type_than_they_were():
    with pytest.raises(
        LoopTypeError, match="part 0 is of type.*It must return the type that it takes"
    ):
        AssociativeScan.of(lambda e, f: [e[0][0] * f[0][0]], [a])
