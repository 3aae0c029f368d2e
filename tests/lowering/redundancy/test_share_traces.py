"""Traces that differ in the order of their axes become one."""

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import DimShuffle

from loopax import scan
from loopax.ir import Scan
from loopax.lowering.redundancy.share_traces import share_traces
from tests.support.compare import imported
from tests.support.kept import rewritten

A = pt.tensor("A", shape=(None, 2, 3), dtype="float64")
START = pt.tensor("start", shape=(2, 3), dtype="float64")
INPUTS = [A, START]
RNG = np.random.default_rng(0)
VALUES = [RNG.normal(size=(5, 2, 3)), RNG.normal(size=(2, 3))]


def shared(*outputs):
    graph = imported(INPUTS, list(outputs)).graph
    return rewritten(graph, share_traces, VALUES, [VALUES[0][:0], VALUES[1]])


def loops(graph):
    return [node for node in graph.toposort() if isinstance(node.op, Scan)]


def with_rows(*rows):
    """The traces of rows of a state."""
    return scan(lambda s, a: (0.5 * s + a, [row(s * a) for row in rows]), START, A)[1]


ROWS = {
    "transposed": lambda s: s.T,
    "with an axis": lambda s: s[:, None, :],
    "transposed, with axes": lambda s: s.T[None, :, :, None],
}


@pytest.mark.parametrize("case", ROWS)
def test_a_row_and_its_move(case):
    traces = with_rows(lambda s: s, ROWS[case])
    (loop,) = loops(shared(*traces))
    assert loop.op.n_ys == 1


def test_two_moves_of_a_row_that_is_no_trace():
    (loop,) = loops(shared(*with_rows(lambda s: s.T, lambda s: s[None], lambda s: 2 * s)))
    assert loop.op.n_ys == 2


def test_a_dropped_axis():
    def step(total, a):
        row = pt.specify_shape(a[:1], (1, 3))
        return total + row.sum(), [row, row.dimshuffle(1)]

    (loop,) = loops(shared(*scan(step, 0.0, A)[1]))
    assert loop.op.n_ys == 1


@pytest.mark.parametrize(
    "rows",
    [
        [lambda s: s, lambda s: s + 1.0],
        [lambda s: s],
        [lambda s: s.T, lambda s: s.T],  # equal ports are another pass's
        [lambda s: s, lambda s: s.reshape((3, 2))],
    ],
)
def test_other_rows_stay(rows):
    traces = with_rows(*rows)
    (before,) = loops(imported(INPUTS, traces).graph)
    (after,) = loops(shared(*traces))
    assert after.op.n_ys == before.op.n_ys


def test_a_loop_back_reads_the_trace_as_it_is():
    straight, transposed = with_rows(lambda s: s, lambda s: s.T)
    back = scan(
        lambda s, rows: (0.5 * s + rows[0] @ rows[1] + rows[1].T @ rows[0].T, None),
        pt.zeros((2, 2)),
        [straight, transposed],
        reverse=True,
    )[0]
    _, reader = loops(shared(back))
    moved = [x for x in reader.inputs if x.owner is not None and isinstance(x.owner.op, DimShuffle)]
    assert not moved
    shuffles = [node for node in reader.op.fgraph.apply_nodes if isinstance(node.op, DimShuffle)]
    assert all(node.inputs[0].owner is None for node in shuffles)


def test_in_the_step_of_a_loop():
    def outer(total, row):
        traces = scan(lambda s, a: (s * a, [s.T, s]), row, A)[1]
        return total + traces[0].sum() + (traces[1] ** 2).sum(), None

    total = scan(outer, 0.0, A)[0]
    (loop,) = loops(shared(total))
    (inner,) = loops(loop.op.fgraph)
    assert inner.op.n_ys == 1


def test_a_loop_that_begins_with_a_number_of_another_loop():
    """The number has no axis behind which a trace could be transposed."""
    first = scan(lambda s, a: (0.5 * s, None), pt.ones((1, 1)), A)[0]
    total = scan(lambda s, a: (s + a.sum(), None), first.dimshuffle(), A)[0]
    assert len(loops(shared(total))) == 2
