"""Traces pieced together from a trace and an end become traces; the values stay as they are."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Join

from loopax import scan
from loopax.lowering.storage.state_traces import state_traces
from tests.support.compare import loops
from tests.support.kept import rewritten

w, m = pt.dvector("w"), pt.dmatrix("m")
a, s, v = pt.dscalar("a"), pt.dscalar("s"), pt.dvector("v")
LENGTHS = (0, 1, 2, 5)


def values(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    rows = [rng.normal(size=n), rng.normal(size=(n, 2))]
    return [*rows, np.asarray(0.7), np.asarray(-0.4), np.asarray([0.1, 0.2])]


def traced(outputs: Any, lengths: Any = LENGTHS, changed: bool = True) -> FunctionGraph:
    """The graph after the pass, with the values of the one before, and nothing left to do."""
    graph = FunctionGraph([w, m, a, s, v], list(outputs), clone=True)
    before = graph.toposort()
    rewritten(graph, state_traces, *map(values, lengths))
    assert (graph.toposort() != before) == changed
    return graph


def joins(graph: FunctionGraph) -> int:
    return sum(isinstance(node.op, Join) for node in graph.apply_nodes)


def one(row: Any) -> Any:
    return pt.shape_padleft(row)


def before(**options: Any) -> Any:
    """The end of a loop, and the states before its steps."""
    return scan(lambda c, r: (pt.tanh(a * c + r), c), s, w, **options)


def behind(**options: Any) -> Any:
    """The end of a loop, and the states behind its steps."""

    def step(c: Any, r: Any) -> Any:
        new = pt.tanh(a * c + r)
        return new, new

    return scan(step, s, w, **options)


# -- what is a trace ---------------------------------------------------------------------------------


def test_the_states_behind_the_steps():
    final, trace = before()
    graph = traced([pt.join(0, trace, one(final))[1:]])
    assert joins(graph) == 0
    assert loops(graph)[0].op.n_ys == 2


def test_the_states_behind_the_steps_of_a_loop_in_reverse():
    final, trace = before(reverse=True)
    assert joins(traced([pt.join(0, one(final), trace)[:-1]])) == 0


def test_the_states_before_the_steps():
    _, trace = behind()
    assert joins(traced([pt.join(0, one(s), trace)[:-1]])) == 0
    _, trace = behind(reverse=True)
    assert joins(traced([pt.join(0, trace, one(s))[1:]])) == 0


def test_backwards():
    final, trace = before()
    rows = pt.join(0, trace, one(final))
    assert joins(traced([rows[:0:-1], rows[1:][::-1], rows[1:]])) == 0


def test_cut_first():
    final, trace = scan(lambda c, _: (pt.tanh(a * c), c), s, length=4)
    graph = traced([pt.join(0, trace[1:], one(final)), trace])
    assert joins(graph) == 0 and loops(graph)[0].op.n_ys == 2


def test_a_trace_that_is_there_is_the_one():
    def step(c: Any, r: Any) -> Any:
        new = pt.tanh(a * c + r)
        return new, (c, new)

    final, (trace, after) = scan(step, s, w)
    graph = traced([pt.join(0, trace, one(final))[1:], after, pt.join(0, one(s), after)[:-1]])
    assert joins(graph) == 0 and loops(graph)[0].op.n_ys == 2


def test_rows_of_rows_and_several_loops():
    rows = pt.specify_shape(m, (None, 2))
    first = pt.specify_shape(v, (2,))
    final, trace = scan(lambda c, r: (pt.tanh(a * c + r), c), first, rows)
    after = pt.join(0, trace, one(final))[1:]
    last, again = scan(lambda c, r: (c * r, c), first, after)
    graph = traced([pt.join(0, again, one(last))[1:]])
    assert joins(graph) == 0


def test_in_a_body():
    def step(c: Any, r: Any) -> Any:
        final, trace = scan(lambda d, q: (pt.tanh(d * q), d), c, w)
        return pt.join(0, trace, one(final))[1:].sum(), r

    final, _ = scan(step, s, w)
    graph = traced([final])
    assert all(joins(node.op.fgraph) == 0 for node in loops(graph))


# -- what is not -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        lambda final, trace: pt.join(0, trace, one(final)),
        lambda final, trace: pt.join(0, trace, one(final))[:-1],
        lambda final, trace: pt.join(0, trace, one(s))[1:],
        lambda final, trace: pt.join(0, one(final), trace)[:-1],
        lambda final, trace: pt.join(0, trace, one(final), one(s))[1:],
        lambda final, trace: pt.join(0, trace[::-1], one(final))[1:],
        lambda final, trace: trace[1:],
    ],
)
def test_other_rows(rows):
    traced([rows(*before())], changed=False)


def test_what_is_no_trace_of_a_state():
    final, trace = scan(lambda c, r: (pt.tanh(a * c + r), c * r), s, w)
    traced([pt.join(0, trace, one(final))[1:]], changed=False)


def test_a_loop_that_stops():
    final, trace, _ = scan(lambda c, r: (pt.tanh(a * c + r), c, c > 0.5), s, w)
    graph = FunctionGraph([w, a, s], [pt.join(0, trace, one(final))[1:]], clone=True)
    nodes = graph.toposort()
    state_traces(graph)
    assert graph.toposort() == nodes


def test_one_row_of_what_a_trace_is_joined_to_is_no_trace():
    """The second derivative of a loop with two taps reads a row of the join, which has no rows itself."""
    rows, start = pt.dvector("rows"), pt.dscalar("start")
    _, ys = scan(lambda c, r: (c * r, c), start, rows)
    graph = FunctionGraph([rows, start], [pt.concatenate([ys[1:], rows[:1]])[0]], clone=True)
    nodes = graph.toposort()
    state_traces(graph)
    assert graph.toposort() == nodes
