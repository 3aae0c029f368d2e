"""Instances of a graph with a loop in it stay calls of one function, where they are kept."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert

from loopax.importer.import_graph import import_graph
from loopax.ir import Call, Scan, check, evaluate
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.lowering import lower
from loopax.lowering.canonical.inline_calls import has_calls, inline_calls
from tests.support.kept import rewritten

x, a = pt.dvector("x"), pt.dscalar("a")


def filtered(change=lambda s: s):
    """A function with a loop in it, new at each call."""
    r, k = pt.dvector("r"), pt.dscalar("k")
    s = pytensor.scan(lambda y, s: k * s + y, r, pt.zeros(()), return_updates=False)
    return OpFromGraph([r, k], [change(s), s[-1]], name="filtered")


def imported(outputs, keeps_calls=True):
    graph = FunctionGraph([x, a], outputs, clone=True)
    import_graph(graph, keeps_calls)
    check(graph)
    return graph


def calls(graph):
    return [node.op for node in graph.toposort() if isinstance(node.op, Call)]


def test_instances_are_calls_of_one_function():
    op = filtered()
    graph = imported([op(x, a)[0].sum() + op(2 * x, a + 1)[1]])
    one, other = calls(graph)
    assert one == other and str(one) == "Call{filtered}"
    (value,) = evaluate(graph, np.array([1.0, 2.0]), np.array(0.5))
    assert value == 1 + 2.5 + (2 * 1.5 + 4)


def test_equal_graphs_are_one():
    one, other = calls(imported([filtered()(x, a)[0], filtered()(x + 1, a)[0]]))
    assert one == other
    assert not calls(imported([filtered()(x, a)[0], filtered(pt.exp)(x + 1, a)[0]]))


def test_what_is_opened():
    small = OpFromGraph([x, a], [pt.exp(x) * a])
    assert not calls(imported([small(x, a) + small(x + 1, a)]))
    checked = filtered(lambda s: Assert("positive")(s, s[0] > 0))
    assert not calls(imported([checked(x, a)[0] + checked(x + 1, a)[0]]))
    assert not calls(imported([filtered()(x, a)[0]]))  # one alone
    op = filtered()
    assert not calls(imported([op(x, a)[0] + op(x + 1, a)[0]], keeps_calls=False))


def test_calls_are_inlined_in_bodies_and_in_one_another():
    op = filtered()
    r, k = pt.dvector("r"), pt.dscalar("k")
    two = OpFromGraph([r, k], op(op(r, k)[0], k + 1))
    out = two(x, a)[1] + two(x + 1, a)[1]
    row = pytensor.scan(lambda y: two(y * x, a)[1] + two(x, y)[1], x, return_updates=False)
    graph = imported([out, row])
    assert any(isinstance(node.op, Call) for node in nodes_within(graph.inputs, graph.outputs))
    values = np.array([1.0, -0.5, 2.0]), np.array(0.3)
    opened = rewritten(graph, inline_calls, values)
    assert not has_calls(opened)
    nodes = list(nodes_within(opened.inputs, opened.outputs))
    assert not any(isinstance(node.op, Call) for node in nodes)
    assert sum(isinstance(node.op, Scan) for node in nodes) >= 4


def test_the_passes_keep_calls():
    op = filtered()
    graph = imported([op(x, a)[1] * op(2 * x, a)[1]])
    values = np.array([1.0, -0.5, 2.0]), np.array(0.3)
    before = evaluate(graph, *values)
    lower(graph)
    check(graph)
    one, other = calls(graph)
    assert one == other and len(one.fgraph.outputs) == 1  # the trace, which nobody reads, is gone
    np.testing.assert_allclose(evaluate(graph, *values), before, rtol=1e-14)
