"""The derivative of a loop that stops goes over the steps that it took."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax.ir import Cond, Scan, evaluate
from loopax.lowering.order import NATIVE_PASSES
from loopax.lowering.redundancy.merge_loops import merge_loops
from loopax.lowering.redundancy.remove_unused import remove_unused
from loopax.lowering.redundancy.unmask import unmask
from tests.support.compare import imported, loops
from tests.support.kept import rewritten

c, x0 = pt.dscalars("c", "x0")
xs = pt.dvector("xs")


def root():
    """The square root of c, by at most 50 steps of Newton's."""
    step = lambda s, _: (s - (s**2 - c) / (2 * s), None, abs(s**2 - c) < 1e-9)  # noqa: E731
    return loopax.scan(step, x0, None, 50)[0]


def over_rows():
    final, ys, _ = loopax.scan(lambda s, x: (s * c + x, pt.tanh(s) * x, s > 2), x0, xs)
    return (ys**2).sum() + final


def while_loop():
    return loopax.while_loop(lambda s: pt.lt(s, 9), lambda s: s * c + 1, x0, max_steps=30)


def two_states():
    def step(carry, x):
        s, m = carry
        return (pt.sin(s * c) + x, pt.maximum(m, s)), (s * m, m), s + m > 2

    (s, m), (p, q), _ = loopax.scan(step, (x0, c), xs)
    return s * m + (p * pt.arange(1, p.shape[0] + 1)).sum() + (q**2).sum()


def after(outputs, *cases, inputs=(c, x0, xs)):
    """The graph after the pass and those that finish its work."""
    graph = imported(list(inputs), outputs).graph
    passes = merge_loops, unmask, merge_loops, remove_unused
    return rewritten(graph, passes, *cases, rtol=1e-12, atol=1e-14)


def steps(graph):
    """Of each loop, in the order of the program: whether it stops, and whether it has a condition."""
    return [
        (n.op.stops, any(isinstance(m.op, Cond) for m in n.op.fgraph.apply_nodes))
        for n in loops(graph)
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("build", [root, over_rows, while_loop, two_states])
def test_one_loop_that_stops_and_one_back(build):
    cost = build()
    outputs = [cost, *pytensor.grad(cost, [c, x0, xs], disconnected_inputs="ignore")]
    assert (False, True) in steps(imported([c, x0, xs], outputs).graph)
    cases = [(start, 0.4, np.full(n, 0.3)) for n, start in ((0, 1.7), (6, 1.7), (3, 0.1))]
    assert steps(after(outputs, *cases)) == [(True, False), (False, False)]


def test_a_loop_that_takes_no_step():
    cost = while_loop()
    cases = [(1.7, start) for start in (20.0, 9.0)]
    graph = after([cost, *pytensor.grad(cost, [c, x0])], *cases, inputs=(c, x0))
    for _, start in cases:
        assert evaluate(graph, np.asarray(1.7), np.asarray(start)) == [start, 0.0, 1.0]


def test_in_a_body():
    starts = pt.dvector("starts")

    def solve(start):
        step = lambda s, _: (s - (s**2 - c) / (2 * s), None, abs(s**2 - c) < 1e-9)  # noqa: E731
        return loopax.scan(step, start, None, 50)[0]

    cost = loopax.map(solve, starts).sum()
    at = 2.0, np.array([0.5, 1.5, 4.0])
    graph = after([cost, *pytensor.grad(cost, [c, starts])], at, inputs=(c, starts))
    assert not any(conditional for _, conditional in steps(graph))


def test_second_derivatives_keep_their_values():
    cost = root()
    (slope,) = pytensor.grad(cost, [c])
    at = 2.0, 1.0
    graph = after([slope, pytensor.grad(slope, c)], at, inputs=(c, x0))
    rewritten(graph, NATIVE_PASSES[:-1], at, rtol=1e-9, idempotent=False)
    np.testing.assert_allclose(
        evaluate(graph, np.asarray(2.0), np.asarray(1.0))[0], 0.5 / np.sqrt(2), rtol=1e-9
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda actual: actual.traces[0],  # all its rows
        lambda actual: actual.traces[0][3],  # one behind the end
        lambda actual: pt.cumsum(actual.traces[0]),
    ],
)
def test_what_reads_the_rows_behind_the_end_keeps_them(spoil):
    """A mask that a user has written: the rows of a step that does nothing are there."""
    flag, s, c0 = pt.scalar("flag", dtype="bool"), pt.dscalar("s"), pt.dscalar("c0")
    body = Cond.from_branches([s, c0], [s, pt.constant(np.True_)], [s * c0, s > 2])
    next_s, done = body.bind(flag, [s, c0])
    masked = Scan.from_body(
        loopax.ir.BodyArgs(pt.lscalar("i"), [], [flag, s], [c0]),
        loopax.ir.BodyOuts([done, next_s], [s]),
    )
    start = [pt.constant(np.False_), x0]
    actual = masked.split_outputs(
        masked.bind(loopax.ir.ScanArgs(pt.constant(6, dtype="int64"), [], start, [c]))
    )
    before = imported([c, x0], [spoil(actual)]).graph
    assert steps(after([spoil(actual)], inputs=(c, x0))) == steps(before)
