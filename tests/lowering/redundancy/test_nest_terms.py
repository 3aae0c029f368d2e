"""Terms that several sums or products have in common are combined once."""

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise

from loopax import scan
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.lowering import lower_to_loops
from loopax.lowering.redundancy.nest_terms import nest_terms
from tests.support.compare import imported
from tests.support.kept import rewritten

a, b, c, d, e, f, x, y = scalars = pt.dscalars("a", "b", "c", "d", "e", "f", "x", "y")
GIVEN = np.random.default_rng(0).uniform(0.5, 1.5, len(scalars))


def product(*terms):
    return pt.mul(*terms)


def operations(graph, scalar_op=ps.Mul):
    """How many scalar operations the sums or products of a graph and its bodies are."""
    actual = 0
    for node in graph.apply_nodes:
        if isinstance(node.op, Elemwise) and type(node.op.scalar_op) is scalar_op:
            actual += len(node.inputs) - 1
        if isinstance(node.op, InnerGraphOp):
            actual += operations(node.op.fgraph, scalar_op)
    return actual


def after(inputs, outputs, values, rtol=1e-13):
    """The graph after the pass, which has kept its values."""
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    return rewritten(graph, nest_terms, values, rtol=rtol)


def test_a_product_in_a_longer_one_takes_the_place_of_its_terms():
    graph = after(scalars, [product(a, b, c), product(a, b, c, d, e, f)], GIVEN)
    assert operations(graph) == 2 + 3
    inner, longer = graph.outputs
    assert inner in longer.owner.inputs


def test_the_beginning_of_two_is_shared():
    outputs = [product(a, b, c, d, e, x), product(y, a, b, c, d, e)]
    assert operations(after(scalars, outputs, GIVEN)) == 4 + 1 + 1


def test_sums_too_and_neither_in_the_other():
    terms = a, b, c, d, e
    outputs = [pt.add(*terms, x), pt.add(*terms, y), product(*terms, x), product(*terms, y)]
    graph = after(scalars, outputs, GIVEN)
    assert operations(graph, ps.Add) == operations(graph) == 6


@pytest.mark.parametrize(
    "outputs",
    [
        [product(a, b, c), product(a, b, c, d)],
        [product(a, b, c, d, e), product(a, b, c, d, x)],
        [product(a, b, c, d, e, f)],
        [product(a, b, c, d, e, f), x * y],
        [pt.add(a, b, c), product(a, b, c, d, e, f)],
        [product(*(v.astype("int64") for v in scalars[:6])) for _ in range(2)],
    ],
)
def test_what_is_small_alone_or_of_integers_stays(outputs):
    graph = FunctionGraph(list(scalars), outputs, clone=True)
    before = graph.toposort()
    nest_terms(graph)
    assert graph.toposort() == before


def test_factors_that_are_repeated():
    """The second time that a factor occurs it is another one: a square is not its root."""
    outputs = [product(a, a, b), product(a, b, c, d, e, f), product(a, a, a, b, b, c, d)]
    graph = after(scalars, outputs, GIVEN)
    assert graph.outputs[0] not in graph.outputs[1].owner.inputs
    assert graph.outputs[0] in graph.outputs[2].owner.inputs


def test_constants_stay_where_they_are():
    half, two, three = (pt.constant(k, dtype="float64") for k in (0.5, 2.0, 3.0))
    outputs = [
        product(two, a, b),
        product(three, a, b, c, d, e, f),
        product(a, b, c, d, e, x, half),
    ]
    graph = after(scalars, outputs, GIVEN)
    assert operations(graph) == 2 + 4 + 2 + 2
    assert not any(v.owner.inputs.count(two) for v in graph.outputs[1:])


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_numbers_that_are_none_come_out_as_they_were(value):
    given = [value, *GIVEN[1:]]
    after(scalars, [product(a, b, c, d, e, f), product(a, b, c, d, e, x)], given)


def test_tensors_that_are_broadcast():
    row, column, m = pt.drow("row"), pt.dcol("column"), pt.dmatrix("m")
    u = pt.dvector("u")
    outputs = [product(row, column, u), product(m, row, column, u, u, row, column)]
    rng = np.random.default_rng(1)
    shapes = (1, 4), (3, 1), (3, 4), (4,)
    graph = after([row, column, m, u], outputs, [rng.normal(size=s) for s in shapes])
    assert [v.type for v in graph.outputs] == [v.type for v in outputs]


def test_dtypes_are_not_mixed():
    single = pt.fscalars(6)
    outputs = [
        product(*single[:5]),
        product(*single),
        product(single[0].astype("float64"), a, b, c, d, e),
        product(a, b, c, d, e, x),
    ]
    given = [*GIVEN[:6].astype("float32"), *GIVEN]
    graph = after([*single, *scalars], outputs, given, rtol=1e-6)
    assert [v.dtype for v in graph.outputs] == ["float32"] * 2 + ["float64"] * 2
    assert operations(graph) == 5 + 6


def test_bodies_of_loops():
    rows = pt.dvector("rows")

    def step(s, row):
        return s * row, (product(s, row, a, b, c, d), product(s, row, a, b, c, e))

    _, traces = scan(step, x, rows)
    inputs = [rows, x, a, b, c, d, e]
    before = imported(inputs, list(traces)).graph
    graph = after(before.inputs, before.outputs, [np.arange(1.0, 4.0), *GIVEN[:6]])
    assert operations(graph) < operations(before)


def chain(length):
    """A step of so many operations, with a gradient, lowered; and the graph before."""
    start, p, rows = pt.dscalar("start"), pt.dscalar("p"), pt.dvector("rows")

    def step(state, row):
        for k in range(length):
            state = pt.tanh(state * p) if k % 2 else pt.sin(state) * p + row
        return state, state

    final, _ = scan(step, start, rows)
    graph = imported([start, p, rows], [final, *pytensor.grad(final, [start, p])]).graph
    return graph


@pytest.mark.slow
def test_the_gradient_of_a_long_chain_grows_as_the_chain_does():
    counts = []
    for length in (20, 40):
        graph = chain(length)
        lower_to_loops(graph)
        counts.append(operations(graph))
    assert counts[1] < 2.1 * counts[0]


def test_the_gradient_of_a_chain():
    values = 0.3, 0.9, np.array([0.2, 0.4])
    rewritten(chain(12), lower_to_loops, values, rtol=1e-12, idempotent=False)
