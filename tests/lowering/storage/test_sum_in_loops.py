"""A sum over the rows of a trace becomes a state, and the trace is not made."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import CAReduce

from benchmarks.programs import ar2_graph, garch_graph
from loopax import scan
from loopax.ir import Scan, evaluate
from loopax.lowering.fission.functions_out import functions_out
from loopax.lowering.fusion.fuse_loops import fuse_loops
from loopax.lowering.order import NATIVE_PASSES
from loopax.lowering.redundancy.remove_unused import remove_unused
from loopax.lowering.storage.sum_in_loops import sum_in_loops
from tests.support.compare import imported, loops
from tests.support.kept import rewritten

s0, a, b = pt.dscalars("s0", "a", "b")
x, y = pt.dvectors("x", "y")


def trace(name=None):
    return scan(lambda s, row: (pt.tanh(a * s) + row, s * row), s0, x, name=name)[1]


def after(outputs, *lengths, inputs=(s0, a, b, x, y)):
    """The graph after the pass and the two that finish its work, with its values at some lengths."""
    graph = imported(list(inputs), outputs).graph
    passes = sum_in_loops, fuse_loops, remove_unused
    return rewritten(graph, passes, *map(values, lengths), rtol=1e-12, atol=1e-14)


def values(n):
    rng = np.random.default_rng(n)
    return [
        np.float64(0.3),
        np.float64(0.7),
        np.float64(1.1),
        rng.normal(size=n),
        rng.normal(size=n),
    ]


def made(graph):
    """Of each loop: states, traces. Then the sums that are left."""
    sums = [node for node in graph.apply_nodes if isinstance(node.op, CAReduce)]
    return [(node.op.n_states, node.op.n_ys) for node in loops(graph)], len(sums)


@pytest.mark.parametrize(
    "total",
    [
        lambda t: t.sum(),
        lambda t: (pt.log(1 + t**2) + y * b).sum(),
        lambda t: (t[:, None] * np.ones((1, 2))).sum(),
        lambda t: (t[:, None] * np.ones((1, 2))).sum(axis=0),
        lambda t: (t > 0).sum(),
        lambda t: t.astype("float32").sum(),
    ],
)
def test_the_trace_is_not_made(total):
    assert made(after([total(trace())], 0, 1, 5)) == ([(2, 0)], 0)


def test_two_sums_of_one_trace():
    t = trace()
    assert made(after([t.sum(), (t * y).sum()], 4)) == ([(3, 0)], 0)


def test_a_trace_that_is_returned_as_well():
    t = trace()
    assert made(after([t, t.sum()], 4)) == ([(2, 1)], 0)


def test_behind_a_first_row():
    t = pt.concatenate([s0[None], trace()])
    after([(pt.log(1 + t**2) * pt.concatenate([b[None], y])).sum()], 3)
    graph = after([pt.log(1 + t**2).sum()], 0, 1, 5)
    assert made(graph)[0] == [(2, 0)]
    assert not any(isinstance(node.op, Join) for node in graph.apply_nodes)


@pytest.mark.parametrize(
    "total",
    [
        lambda t: pt.exp(t - t.max()).sum(),
        lambda t: ((t - t[-1]) ** 2).sum(),
        lambda t: ((t - t.min()) / (t.max() - t.min())).sum(),
        lambda t: (t * pt.cumsum(t)[-1] + b).sum(),
        lambda t: (t[:, None] * t.max(keepdims=True)).sum(axis=0),
    ],
)
def test_a_value_of_all_parts_stays_whole(total):
    t = pt.concatenate([s0[None], trace()])
    graph = after([total(t)], 1, 2, 5)
    assert len(loops(graph)) == 2  # the trace, and the sum over its part


def test_a_length_that_does_not_fit_is_an_error():
    z = pt.dvector("z")
    for t, rows in ((trace(), 4), (pt.concatenate([s0[None], trace()]), 5)):
        graph = after([(t * z).sum()], inputs=(s0, a, x, z))
        for n in {1, 4, 5, 7} - {rows}:
            with pytest.raises(ValueError, match=r"mismatch|one row for each step|takes \d steps"):
                evaluate(graph, np.float64(0.3), np.float64(0.7), np.ones(4), np.ones(n))


@pytest.mark.parametrize(
    "other",
    [
        lambda: (x * y).sum(),  # no loop
        lambda: trace().prod(),
        lambda: pt.cumsum(trace()).sum(),  # not row by row
        lambda: (pt.alloc(trace()[:, None], x.shape[0], 2) + 1).sum(),  # the length of all rows
        lambda: scan(lambda s, row: (s + row, row, s > 3), s0, x)[1].sum(),  # it stops
    ],
)
def test_what_is_left_alone(other):
    before = imported([s0, a, b, x, y], [other()]).graph
    graph = before.clone()
    sum_in_loops(graph)
    assert [n.op for n in graph.toposort()] == [n.op for n in before.toposort()]


@pytest.mark.parametrize("build", [ar2_graph, garch_graph])
def test_likelihoods_are_one_loop_that_stores_nothing(build):
    inputs, out = build()
    graph = imported(inputs, [out]).graph
    for run in NATIVE_PASSES[:-1]:
        if run is not functions_out:  # which takes the logarithms of GARCH's variances out again
            run(graph)
    (loop,) = loops(graph)
    assert isinstance(loop.op, Scan) and not loop.op.n_ys


def test_in_a_body():
    rows = pt.dmatrix("rows")

    def step(s, row):
        inner = pytensor.scan(
            lambda r, z: pt.tanh(z + r), sequences=[row], outputs_info=[s], return_updates=False
        )
        return (inner**2).sum(), None

    graph = imported([s0, rows], [scan(step, s0, rows)[0]]).graph
    passes = sum_in_loops, fuse_loops, remove_unused
    rewritten(graph, passes, [0.2, np.arange(6.0).reshape(3, 2)], rtol=1e-12)
    _, inner = loops(graph)
    assert (inner.op.n_states, inner.op.n_ys) == (2, 0)
