"""What feeds no state leaves a loop, where what the loop then emits is no more than before."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import scan
from loopax.lowering.fission.row_wise_body import is_small_product
from loopax.lowering.fission.split_loops import split_loops
from tests.support.compare import loops
from tests.support.kept import rewritten

x, rows = pt.dvector("x"), pt.dmatrix("rows")
s, v = pt.dscalar("s"), pt.dvector("v")


def after(outputs, lengths=(0, 1, 4)):
    """The graph after the pass, at some numbers of steps."""
    rng = np.random.default_rng(0)
    cases = [[rng.normal(size=n), rng.normal(size=(n, 2)), 0.6, np.ones(2)] for n in lengths]
    graph = FunctionGraph([x, rows, s, v], list(outputs), clone=True)
    return rewritten(graph, split_loops, *cases, rtol=1e-12)


def ops(graph):
    """What a graph computes, without what its bodies do."""
    return {str(getattr(n.op, "scalar_op", n.op)) for n in graph.toposort()}


def body_of(graph):
    """What the step of the only loop computes."""
    (node,) = loops(graph)
    return ops(node.op.fgraph)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "emit",
    [lambda c, new, r: pt.exp(c) * r, lambda c, new, r: pt.exp(new) + r],
    ids=["before the step", "behind it"],
)
def test_a_function_of_a_state_leaves(emit, reverse):
    def step(c, r):
        new = pt.tanh(c + r)
        return new, emit(c, new, r)

    final, ys = scan(step, s, x, reverse=reverse)
    graph = after([final, ys])
    assert "exp" not in body_of(graph) and "tanh" in body_of(graph)
    assert "exp" in ops(graph)


@pytest.mark.parametrize("n", [1, 2])
def test_a_state_that_is_the_same_after_each_step(n):
    """Its rows are a trace, although the step computes them from constants alone."""

    def step(c, r):
        new = pt.exp(v)
        return new, pt.tanh(new) * (1.0 if n == 1 else c)

    final, ys = scan(step, v, x)
    assert "tanh" in ops(after([final, ys]))


def test_what_feeds_a_state_stays():
    def step(c, r):
        y = pt.exp(c) * r
        return pt.tanh(y), y

    assert "exp" in body_of(after(scan(step, s, x)))


def test_what_reads_more_than_it_emits_stays():
    """The loop would emit a vector at each step in the place of a number."""
    final, ys = scan(lambda c, r: (pt.tanh(c + r), (c * r).sum()), v, rows)
    (node,) = loops(after([final, ys]))
    assert node.op.fgraph.outputs[-1].type.ndim == 0


def test_more_states_than_traces_must_pay():
    """Two states for one trace: a product of them pays for the second, a sum of what is small does not."""

    def step(emit):
        return lambda c, r: ((pt.tanh(c[0] + r), pt.sin(c[1]) * r), emit(*c))

    (_, ys) = scan(step(lambda p, q: pt.exp(p) * q), (s, s * 2), x)
    assert "exp" not in body_of(after([ys]))
    (_, ys) = scan(step(lambda p, q: p + q), (s, s * 2), x)
    assert "add" in body_of(after([ys]))


def test_a_loop_that_stops_is_left_alone():
    actual = scan(lambda c, r: (c + pt.tanh(r), pt.exp(c), c > 1), s, x)
    graph = FunctionGraph([x, s], [actual[0], actual[1]], clone=True)
    before = graph.toposort()
    split_loops(graph)
    assert graph.toposort() == before


def test_in_a_body():
    def outer(c, r):
        final, ys = scan(lambda e, w: (pt.tanh(e * w), pt.exp(e)), c, v)
        return final + r, ys.sum()

    around, inner = loops(after(scan(outer, s, x)))
    assert "exp" in ops(around.op.fgraph) and "exp" not in ops(inner.op.fgraph)


@pytest.mark.parametrize(("n", "stays"), [(2, True), (4, True), (5, False), (None, False)], ids=str)
def test_products_of_small_matrices_stay(n, stays):
    """Outside they are a call for all rows."""
    m = pt.tensor("m", dtype="float64", shape=(n, n))
    out, ys = scan(lambda c, r: (pt.tanh(c), pt.dot(c, c)[0, 0] * r), m, x)
    graph = FunctionGraph([x, m], [out, ys], clone=True)
    order = n or 3
    graph = rewritten(graph, split_loops, [np.ones(3), np.full((order, order), 0.1)], rtol=1e-12)
    (node,) = loops(graph)
    assert "Dot" in ops(node.op.fgraph) or not stays
    assert is_small_product(pt.dot(m, m).owner) == stays
