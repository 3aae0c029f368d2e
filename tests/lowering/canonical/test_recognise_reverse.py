"""Loops over flipped sequences run backwards: fewer flips, and the same values."""

import warnings
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from loopax import scan
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, evaluate
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.lowering import lower
from loopax.lowering.canonical.recognise_reverse import recognise_reverse
from loopax.lowering.canonical.simplify_gradients import simplify_gradients
from loopax.lowering.canonical.stabilize import stabilize
from tests.support.assorted_loops import X, a, m, s, v, x
from tests.support.compare import imported, loops
from tests.support.kept import rewritten

n = pt.lscalar("n")
VALUES = [X, np.asarray(0.6), np.asarray(0.7)]


def flips(graph: Any) -> int:
    """The slices of a graph that turn rows around, those in bodies too."""
    actual = 0
    for node in graph.toposort():
        if isinstance(node.op, InnerGraphOp):
            actual += flips(node.op.fgraph)
        if isinstance(node.op, Subtensor):
            first, *_ = indices_from_subtensor(node.inputs[1:], node.op.idx_list) or [None]
            actual += isinstance(first, slice) and first.step is not None and first.step.data == -1
    return actual


def turned(graph: Any) -> list[bool]:
    return [node.op.options.reverse for node in loops(graph)]


def left(outputs: Any, given: Any = (x, s, a), at: Any = VALUES) -> FunctionGraph:
    """The graph after the pass, with the values of the one before, and nothing left to do."""
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    return run(graph, at)


def run(graph: FunctionGraph, at: Any) -> FunctionGraph:
    return rewritten(graph, recognise_reverse, at)


def over(*xs: Any, **options: Any) -> Any:
    """The state behind a loop over ``xs`` and its trace."""
    return scan(lambda c, r: (a * c + sum(r), c * r[0]), s, xs, **options)


def left_both(outputs: Any) -> FunctionGraph:
    """With rows, and with none at all."""
    left(outputs, at=[X[:0], *VALUES[1:]])
    return left(outputs)


# -- one loop ----------------------------------------------------------------------------------------

LENGTH = x.shape[0]
FLIPPED = {
    "plain": x[::-1],
    "from the last row": x[LENGTH - 1 :: -1],
    "from -1": x[-1::-1],
    "to before the first": x[-1 : -LENGTH - 1 : -1],
    "from behind the last": x[9::-1],
    "sliced before": x[1:][::-1],
    "sliced before, at the end": x[:-1][::-1],
    "sliced behind": x[::-1][1:],
    "sliced behind, at the end": x[::-1][:-2],
    "a window": x[3:0:-1],
    "a window from the end": x[-1:-3:-1],
    "a window of a flip": x[::-1][-3:-1],
    "none": x[2:-1:-1],
    "none of a flip": x[::-1][:0],
    "as long as n": x[::-1][: pt.maximum(n, 0)],
    "from n": x[::-1][pt.maximum(n, 0) :],
    "down from n": x[pt.maximum(n, 0) :: -1],
    "of an expression": pt.sin(x[::-1]) * 2,
    "of joined rows": pt.concatenate([s[None], x[::-1]]),
    "set": pt.set_subtensor(pt.zeros(LENGTH)[1:], x[::-1][1:]),
    "increased": pt.inc_subtensor(x[::-1][0], s),
    "twice": x[::-1][::-1][::-1],
}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", FLIPPED)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_over_flipped_rows_runs_the_other_way(name, reverse):
    final, _ = over(FLIPPED[name], reverse=reverse)
    for rows in (4, 2, 1, 0):
        for steps in (0, 2, 9) if "n" in name.split() else (0,):
            if name != "increased" or rows:
                graph = left([final], [x, s, a, n], [X[:rows], 0.6, 0.7, steps])
    assert (turned(graph), flips(graph)) == ([not reverse], 0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(x[n:][::-1], True), (x[::-1][n:], False), (x[n::-1], False), (x[:n:-1], False)],
)
def test_a_bound_of_unknown_sign(rows, expected):
    """It may count from either end."""
    final, _ = over(rows)
    for k in (-9, -4, -1, 0, 1, 3, 9):
        graph = left([final], [x, s, a, n], [*VALUES, k])
    assert turned(graph) == [expected]


def test_a_trace_that_is_flipped_again():
    _, ys = over(x[::-1])
    graph = left_both([ys[::-1]])
    assert (turned(graph), flips(graph)) == ([True], 0)
    graph = left_both([ys[::-1][1:], ys[1:][::-1], ys[:-1][::-1].sum()])
    assert (turned(graph), flips(graph)) == ([True], 0)
    graph = left([ys[-1], ys[0], ys[n], ys.shape[0]], [x, s, a, n], [*VALUES, 2])
    assert (turned(graph), flips(graph)) == ([True], 0)
    for k in (4, -5):
        bad = FunctionGraph([x, s, a, n], [ys[n]], clone=True)
        recognise_reverse(bad)
        with pytest.raises(IndexError):
            evaluate(bad, *VALUES, np.asarray(k))


def test_what_takes_as_many_flips_stays():
    """One for a sequence or one for a trace; and one sequence each way."""
    final, ys = over(x[::-1])
    assert turned(left_both([ys])) == [False]
    assert turned(left_both([over(x[::-1], x)[0]])) == [False]
    assert turned(left_both([over(x, pt.sin(x))[0]])) == [False]


def test_more_sequences_this_way_than_that():
    graph = left_both([over(x[::-1], x, pt.cos(x)[::-1])[0]])
    assert (turned(graph), flips(graph)) == ([True], 1)
    graph = left_both([over(x[::-1], x, pt.cos(x))[0]])
    assert (turned(graph), flips(graph)) == ([False], 1)


def test_rows_that_are_all_the_same_go_either_way():
    ones, zeros = pt.alloc(s, LENGTH), pt.zeros_like(x)
    graph = left_both([over(x[::-1], ones, zeros, ones[::-1], pt.ones(x[::-1].shape))[0]])
    assert (turned(graph), flips(graph)) == ([True], 0)


def test_constants_are_turned_here():
    numbers = pt.constant(np.arange(4.0))
    graph = left([over(x[::-1], numbers)[0]])
    assert (turned(graph), flips(graph)) == ([True], 0)
    assert turned(left([over(x, numbers[::-1])[0]])) == [False]
    assert flips(left([over(x, numbers[::-1])[0]])) == 0


def test_the_index_counts_as_before():
    i, r, c, k = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.lscalar()
    op = Scan.from_body(BodyArgs(i, [r], [c], [k]), BodyOuts([c * i + r], [i - k, c]))

    def outs(n_steps, rows, k=n):
        actual, ks, cs = op.bind(ScanArgs(n_steps, [rows[::-1]], [s], [k]))
        return [actual, ks[::-1], cs[::-1]]

    for n_steps, rows in ((LENGTH, x), (n, x[:n]), (3, x[:3])):
        graph = left(outs(n_steps, rows), [x, s, n], [X, 0.6, 4])
        assert (turned(graph), flips(graph)) == ([True], 0)
    # A number of steps that is inside already is not given twice.
    (node,) = loops(left(outs(n, x[:n]), [x, s, n], [X, 0.6, 4]))
    assert node.op.n_consts == 1
    left(outs(n, x[:n]), [x, s, n], [X, 0.6, 0])


def test_further_indices_and_axes():
    final, _ = scan(
        lambda c, r: (c * a + r[0] * r[1].sum(), None), s, (m[::-1, 1], m.T[::-1].T[::-1])
    )
    graph = left([final], [m, s, a], [np.arange(6.0).reshape(3, 2), 0.6, 0.7])
    assert (turned(graph), flips(graph)) == ([True], 1)  # the columns are turned as before
    final, _ = scan(lambda c, r: (c * a + r.sum(), None), s, m[::-1, ::-1])
    graph = left([final], [m, s, a], [np.arange(6.0).reshape(3, 2), 0.6, 0.7])
    assert (turned(graph), flips(graph)) == ([True], 0)


# -- loops that stay -----------------------------------------------------------------------------------


def test_loops_that_count_from_their_first_step_stay():
    final, _, stopped = scan(lambda c, r: (c + r, None, c > 0.5), s, x[::-1])
    assert turned(left_both([final, stopped])) == [False]
    trace = pytensor.scan(
        lambda r, c: a * c + r, [x[::-1]], [s], truncate_gradient=2, return_updates=False
    )
    graph = run(imported([x, s, a], trace[-1]).graph, VALUES)
    assert turned(graph) == [False]


def test_errors_stay():
    final, _ = scan(lambda c, r: (c + r, None), s, x[::-1], length=n)
    wrong = FunctionGraph([x, s, n], [final], clone=True)
    recognise_reverse(wrong)
    assert turned(wrong) == [True]
    for k in (5, 3, -1):
        with pytest.raises(ValueError):
            evaluate(wrong, X, np.asarray(0.6), np.asarray(k))


# -- loops that read one another -----------------------------------------------------------------------


def test_a_chain_of_loops():
    """Neither saves anything alone."""
    _, ys = over(x[::-1])
    _, zs = over(ys)
    graph = left_both([zs[::-1]])
    assert (turned(graph), flips(graph)) == ([True, True], 0)


def test_a_loop_and_one_over_its_trace_in_reverse():
    _, ys = over(x)
    final, _ = over(ys[::-1], pt.sin(ys[::-1]))
    graph = left_both([final, ys])
    assert (turned(graph), flips(graph)) == ([False, True], 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_of_pytensor(order):
    x0 = pt.dscalar("x0")
    y = pytensor.scan(lambda x: x**2, outputs_info=x0, n_steps=4, return_updates=False)[-1]
    for _ in range(order):
        y = pytensor.grad(y, x0)
    program = imported([x0], y)
    for run_pass in (stabilize, simplify_gradients):
        run_pass(program.graph)
    assert flips(program.graph)
    graph = run(program.graph, [1.1])
    actual = turned(graph)
    assert flips(graph) == 0 and actual[:2] == [False, True]


def test_the_gradient_of_a_loop_over_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        trace = pytensor.scan(
            lambda r, c1, c2: pt.tanh(a * c1 + r * c2),
            [x],
            [{"initial": pt.stack([s, s]), "taps": [-1, -2]}],
            return_updates=False,
        )
    actual = pytensor.grad((trace**2).sum(), [x, a])
    program = imported([x, s, a], actual)
    lower(program.graph)
    graph = run(program.graph, VALUES)
    assert turned(graph) == [False, True]


# -- bodies ----------------------------------------------------------------------------------------------


def test_loops_in_loops():
    def outer(c, r):
        final, ys = scan(lambda e, q: (e * a + q, e), c, pt.sin(v * r)[::-1])
        return final, ys[::-1]

    final, ys = scan(outer, s, x)
    graph = left([final, ys], [x, s, a, v], [*VALUES, [0.3, -0.5, 0.2]])
    assert (turned(graph), flips(graph)) == ([False, True], 0)
