"""Entries that are added to an array, in the place of a sum of two arrays."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import IncSubtensor

from loopax import jaxify, scan
from loopax.facts.elementwise import is_elementwise
from loopax.lowering.redundancy.add_entries import add_entries
from tests.numba_backend.interpreted import interpreted, lowered
from tests.support.kept import rewritten

a = pt.tensor("a", shape=(4, 3), dtype="float64")
row = pt.tensor("row", shape=(3,), dtype="float64")
open_rows = pt.dmatrix("open_rows")
k = pt.lscalar("k")
at = pt.lvector("at")
INPUTS = [a, row, open_rows, k, at]
VALUES = [
    np.arange(12.0).reshape(4, 3),
    np.array([0.5, -1.0, np.inf]),
    np.ones((4, 3)),
    np.int64(2),
    np.array([1, 1, 3]),
]
ZEROS = pt.zeros((4, 3))


def added(output):
    return rewritten(FunctionGraph(INPUTS, [output], clone=True), add_entries, VALUES)


def sums(graph):
    return sum(is_elementwise(node, ps.Add) for node in graph.apply_nodes)


@pytest.mark.parametrize(
    "term",
    [
        pt.set_subtensor(ZEROS[k], row),
        pt.inc_subtensor(ZEROS[1:3], row),
        pt.set_subtensor(ZEROS[:, 0], 2.0),
        pt.inc_subtensor(ZEROS[at], row),
    ],
    ids=["row", "rows", "column", "repeated rows"],
)
def test_a_write_into_zeros_is_added_in_place(term):
    assert sums(added(a + term)) == 0
    assert sums(added(term + a)) == 0


def test_a_sum_of_nothing_but_writes():
    graph = added(pt.set_subtensor(ZEROS[0], row) + pt.set_subtensor(ZEROS[0], 2 * row))
    assert sums(graph) == 0
    writes = [node for node in graph.toposort() if isinstance(node.op, IncSubtensor)]
    assert [node.op.set_instead_of_inc for node in writes] == [True, False]


def test_three_terms():
    term = pt.set_subtensor(ZEROS[k], row)
    assert sums(added(pt.add(a, term, 2 * a))) == 1


@pytest.mark.parametrize(
    "output",
    [
        a + pt.set_subtensor(ZEROS[at], row),  # of equal indices it keeps the last one
        a + pt.set_subtensor(pt.ones((4, 3))[k], row),
        open_rows + pt.set_subtensor(ZEROS[k], row),  # a length that may not fit
        row + pt.set_subtensor(ZEROS[k], row),  # broadcast
        pt.set_subtensor(ZEROS[k], row) + 1.0,
        a + pt.set_subtensor(pt.zeros((4, 3), dtype="float32")[k], pt.cast(row, "float32")),
    ],
    ids=["set at indices", "ones", "open", "broadcast", "scalar", "float32"],
)
def test_other_sums_stay(output):
    assert sums(added(output)) == 1


def test_a_write_with_another_reader_stays():
    term = pt.set_subtensor(ZEROS[k], row)
    graph = FunctionGraph(INPUTS, [a + term, term * 2], clone=True)
    assert sums(rewritten(graph, add_entries, VALUES)) == 1


def test_a_loop_adds_one_entry_a_step():
    """Without the pass each step adds up all entries."""
    x = pt.tensor("x", shape=(50,), dtype="float64")
    where = pt.lvector("where")

    def step(total, j):
        return total + pt.set_subtensor(pt.zeros((50,))[j], x[j] ** 2), None

    total, _ = scan(step, init=pt.zeros((50,)), xs=where)
    source = interpreted(lowered([x, where], [total])).source
    (loop,) = [part for part in source.split("for ")[1:] if "x1" in part.split("\n", 1)[0] + part]
    assert "range(50)" not in loop
    values, places = np.linspace(0.1, 2.0, 50), np.array([3, 3, 49, 0])
    expected = np.zeros(50)
    np.add.at(expected, places, values[places] ** 2)
    for backend in ("jax", "numba"):
        f = jaxify([x, where], total, backend=backend)
        np.testing.assert_allclose(f(values, places), expected)
