"""Sequences that are computed before their loop, and whether they are large."""

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph

from loopax import scan
from loopax.ir import Scan
from loopax.lowering import lower
from loopax.lowering.analysis.computed_rows import computed_rows

X, H, U = pt.dtensor3("x"), pt.dmatrix("h"), pt.dmatrix("u")


def lowered(out):
    graph = FunctionGraph([X, H, U], [out], clone=True)
    lower(graph)
    return graph


def large(graph, shapes, copies=1):
    inputs = dict(zip(graph.inputs, shapes, strict=True))
    return [rows.are_large(inputs, copies) for rows in computed_rows(graph)]


def test_products_of_rows():
    graph = lowered(scan(lambda h, r: (pt.tanh(h + r @ U), None), H, X)[0])
    row = (64, 32), (8, 32)
    assert large(graph, [(1000, 64, 8), *row]) == [True]
    assert large(graph, [(100, 64, 8), *row]) == [False]
    assert large(graph, [(100, 64, 8), *row], copies=8) == [True]
    # Many rows of few numbers.
    assert large(graph, [(10**6, 1, 8), (1, 8), (8, 8)]) == [False]
    # A length that is not known, such as the symbol of an exported program.
    assert large(graph, [None, *row]) == [False]


def test_data_are_not_computed():
    def step(h, r):
        return pt.tanh(h + r), None

    for x in (X, X[1:], X[::-1], X.transpose(1, 0, 2)):
        graph = lowered(scan(step, H, x)[0])
        assert has_sequences(graph) and computed_rows(graph) == []
        graph = lowered(scan(lambda h, r: step(h, r.sum(axis=0)), H[0], x)[0])
        assert len(computed_rows(graph)) == 1  # the sums, once for all rows


def test_traces_are_not_computed():
    states = scan(lambda h, _: (pt.tanh(h) @ U, h), H, length=5)[1]
    graph = lowered(scan(lambda h, r: (pt.tanh(h + r), None), H, states, reverse=True)[0])
    assert has_sequences(graph) and computed_rows(graph) == []


def has_sequences(graph):
    loops = [node for node in graph.toposort() if isinstance(node.op, Scan)]
    return any(node.op.split_inputs(node.inputs).sequences for node in loops)
