"""A frozen graph lists what it computes once."""

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify, scan
from loopax.base.upstream.pytensor import freeze, thaw
from tests.numba_backend.interpreted import interpreted, lowered

x, y = pt.dvectors("x", "y")


def test_equal_nodes_are_one():
    out = pt.exp(x * y) + pt.sqrt(pt.exp(x * y) + 1)
    frozen = freeze(FunctionGraph([x, y], [out], clone=True))
    assert len(frozen.toposort()) == len(set(frozen.toposort())) == len(frozen.apply_nodes)
    assert sum(str(node.op) == "Exp" for node in frozen.toposort()) == 1


def test_names_are_those_of_the_merged_graph():
    first, second = pt.exp(x), pt.exp(x)
    first.name, following = "level", pt.sqrt(second)
    following.name = "root"
    graph = FunctionGraph([x], [first + following], clone=True)
    frozen = freeze(graph)
    names = {v.name for node in thaw(frozen, graph).apply_nodes for v in node.outputs}
    assert {"level", "root"} <= names


def test_a_step_computes_what_two_readers_share_once():
    """Each reads a rolled row: native code moved its elements twice on PyTensor 3.0."""
    start = pt.tensor("start", shape=(20,), dtype="float64")

    def rolled(row):
        return pt.join(0, row[-1:], row[:-1])

    def step(row, _):
        return 0.5 * rolled(row) * rolled(row)[::-1] + pt.sin(rolled(row)), None

    final = scan(step, init=start, length=3)[0]
    source = interpreted(lowered([start], [final])).source
    assert source.count("empty(") <= 4  # two rows of the state, the rolled row, the result
    values = np.linspace(0.1, 0.9, 20)
    expected = values
    for _ in range(3):
        r = np.roll(expected, 1)
        expected = 0.5 * r * r[::-1] + np.sin(r)
    np.testing.assert_allclose(jaxify([start], final, backend="numba")(values), expected)
