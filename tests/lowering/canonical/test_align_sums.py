"""Rows that a state adds one step late become rows of the step; the values stay as they are."""

import random
import warnings
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from loopax import scan
from loopax.ir import Scan
from loopax.lowering import lower
from loopax.lowering.canonical.align_sums import align_sums
from tests.support.compare import imported, loops
from tests.support.kept import rewritten
from tests.support.random_loops import RANDOM

w, q, m = pt.dvector("w"), pt.dvector("q"), pt.dmatrix("m")
a, s = pt.dscalar("a"), pt.dscalar("s")
LENGTHS = (0, 1, 2, 5)
STRUCTURE = (Join, IncSubtensor, Subtensor)


def values(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    rows = [rng.normal(size=n), rng.normal(size=n), rng.normal(size=(n, 2))]
    return [*rows, np.asarray(0.7), np.asarray(-0.4)]


def aligned(outputs: Any, lengths: Any = LENGTHS, changed: bool = True) -> FunctionGraph:
    """The graph after the pass, with the values of the one before, and nothing left to do."""
    graph = FunctionGraph([w, q, m, a, s], list(outputs), clone=True)
    before = graph.toposort()
    rewritten(graph, align_sums, *map(values, lengths), rtol=1e-12, atol=1e-14)
    assert (graph.toposort() != before) == changed
    return graph


def late(rows: Any, first: Any = 0.0) -> Any:
    """One row, and ``rows`` behind it."""
    return pt.join(0, pt.stack([pt.as_tensor(first, dtype="float64")]), rows)


def early(rows: Any) -> Any:
    return pt.join(0, rows, pt.zeros(1))


def through(buffer: Any, reverse: bool = True, step: Any = None, emit: Any = None) -> Any:
    """The end of a loop through ``buffer``, and its trace."""
    rows, init = (buffer[:-1], buffer[-1]) if reverse else (buffer[1:], buffer[0])
    step = step or (lambda c: a * pt.tanh(c))
    emit = emit or (lambda c: c)
    return scan(lambda c, r: (step(c) + r, emit(c)), init, rows, reverse=reverse)


def read(graph: FunctionGraph) -> list[Any]:
    """The ops that make the sequences of the one loop, None for an input."""
    (node,) = loops(graph)
    sequences = node.op.split_inputs(node.inputs).sequences
    return [None if v.owner is None else type(v.owner.op) for v in sequences]


def pieced(variables: Any) -> bool:
    """Whether rows were joined, cut or written for one of these."""
    return any(v.owner is not None and isinstance(v.owner.op, STRUCTURE) for v in variables)


# -- what is aligned ---------------------------------------------------------------------------------


def test_the_cotangents_of_the_rows_behind_the_steps():
    assert read(aligned(through(late(w)))) == [None]


def test_what_is_in_time_stays_and_what_is_late_moves():
    buffer = pt.inc_subtensor(late(w)[:-1], w * s) + early(w * q)
    graph = aligned(through(buffer))
    assert read(graph) == [Elemwise, None]
    (node,) = loops(graph)
    assert not pieced(node.inputs[1].owner.inputs)
    graph = aligned(through(pt.inc_subtensor(early(w)[1:], pt.exp(w))))
    assert read(graph) == [None, Elemwise]
    graph = aligned(through(pt.inc_subtensor(pt.zeros(w.shape[0] + 1)[1:], w)))
    assert read(graph) == [None]


def test_forwards():
    graph = aligned(through(early(w), reverse=False))
    assert read(graph) == [None]
    graph = aligned(through(early(w) + late(pt.exp(w)), reverse=False))
    assert read(graph) == [Elemwise, None]


def test_the_row_that_is_left_over():
    for reverse in (True, False):
        ends = pt.stack([s])
        buffer = pt.join(0, ends, w) if reverse else pt.join(0, w, ends)
        graph = aligned(through(buffer, reverse, emit=lambda c: c * c))
        assert read(graph) == [None]


def test_rows_of_rows():
    zeros = pt.zeros((1, m.shape[1]))
    buffer = pt.join(0, zeros, m)
    assert read(aligned(through(buffer))) == [None]
    assert read(aligned(through(buffer + pt.join(0, m * a, zeros)))) == [Elemwise, None]
    # Nobody knows that a row of the zeros is no longer than one of the others.
    aligned(through(pt.join(0, pt.zeros((1, 2)), m)), lengths=(1, 2), changed=False)


def test_of_several_states_each():
    y, z = late(w), late(pt.exp(w)) + early(w)
    (one, two, three), trace = scan(
        lambda c, r: ((a * c[1] + r[0], r[1] + c[0] * c[2], c[2] + c[0] * c[1]), c[0] * c[1]),
        (y[-1], z[-1], s),
        (y[:-1], z[:-1]),
        reverse=True,
    )
    graph = aligned([one, two, three, trace])
    assert sorted(read(graph), key=str) == [Elemwise, None, None]  # z has a term of each kind


def test_a_sum_of_sums_inside_and_of_whole_numbers():
    graph = aligned(through(late(w), step=lambda c: (c * a + s) + c * s))
    assert read(graph) == [None]
    k = pt.cast(w * 10, "int8")
    y = pt.join(0, pt.zeros(1, "int8"), k)
    aligned(scan(lambda c, r: (c * c + r, c), y[-1], y[:-1], reverse=True))


def test_lengths_that_are_known():
    rows = pt.specify_shape(w, 3)
    y = late(rows)
    actual = scan(lambda c, r: (a * c + r, c), rows[2], y[:3], reverse=True)
    aligned(actual, lengths=(3,))
    y = pt.join(0, pt.zeros(1), rows[:2])
    graph = aligned(scan(lambda c, r: (a * c + r, c), rows[2], y, reverse=True), lengths=(3,))
    assert read(graph) != [Join]


def test_in_a_body():
    inner = lambda r: through(late(w * r))[0]  # noqa: E731
    _, trace = scan(lambda c, r: (c, inner(r)), s, q)
    graph = aligned([trace])
    (node,) = loops(next(k.op.fgraph for k in graph.apply_nodes if isinstance(k.op, Scan)))
    assert not pieced(node.inputs[1:2])


def window(buffer: Any, depth: int, reverse: bool = True, emit: Any = None) -> Any:
    """The ends of a loop through ``buffer`` with a window of ``depth`` rows, and a trace."""
    rows = buffer[:-depth] if reverse else buffer[depth:]
    inits = [buffer[k] for k in (range(-depth, 0) if reverse else range(depth)[::-1])]
    emit = emit or (lambda *c: c[-1])

    def step(c: Any, r: Any) -> Any:
        last = a * pt.tanh(c[-1])
        return (last + r, *(last * s * k + x for k, x in enumerate(c[:-1], 1))), emit(*c)

    finals, trace = scan(step, tuple(inits), rows, reverse=reverse)
    return [*finals, trace]


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_window_of_several_rows(depth):
    """A row that enters the window is read when it leaves: as many steps late as the window is long."""
    buffer = pt.join(0, pt.zeros(depth), w * q)
    assert read(aligned(window(buffer, depth))) == [Elemwise]


def test_terms_that_are_late_by_different_numbers_of_steps():
    buffers = [pt.join(0, pt.zeros(k), w * x, pt.zeros(3 - k)) for k, x in enumerate([1, 2, 3, a])]
    graph = aligned(window(pt.add(*buffers), 3))
    assert not pieced(loops(graph)[0].inputs[1:5])


def test_a_window_forwards():
    buffer = pt.join(0, w, pt.zeros(2))
    assert read(aligned(window(buffer, 2, reverse=False))) == [None]


def test_a_row_of_the_window_that_the_step_reads_holds_all_terms():
    by_one = pt.join(0, pt.zeros(1), w, pt.zeros(2))
    for emit in (lambda *c: c[1], lambda *c: c[0] * c[1]):
        assert read(aligned(window(by_one, 3, emit=emit))) == [None]
    by_two = pt.join(0, pt.zeros(2), w, pt.zeros(1))
    aligned(window(by_two, 3, emit=lambda *c: c[0] * c[1]), changed=False)


# -- what is not -------------------------------------------------------------------------------------


def test_rows_in_time_stay():
    aligned(through(early(w)), changed=False)
    aligned(through(late(w), reverse=False), changed=False)
    aligned(scan(lambda c, r: (a * c + r, c), s, w, reverse=True), changed=False)


def test_the_state_behind_the_step_is_read():
    y = late(w)

    def step(c: Any, r: Any) -> Any:
        new = a * c + r
        return new, new

    aligned(scan(step, y[-1], y[:-1], reverse=True), changed=False)
    aligned(scan(lambda c, r: (a * c + r, r), y[-1], y[:-1], reverse=True), changed=False)
    aligned(scan(lambda c, r: (a * c * r, c), y[-1], y[:-1], reverse=True), changed=False)


def test_another_initial_state_or_another_buffer():
    y = late(w)
    aligned(scan(lambda c, r: (a * c + r, c), s, y[:-1], reverse=True), changed=False)
    aligned(scan(lambda c, r: (a * c + r, c), y[0], y[:-1], reverse=True), changed=False)
    aligned(scan(lambda c, r: (a * c + r, c), late(q)[-1], y[:-1], reverse=True), changed=False)
    aligned(scan(lambda c, r: (a * c + r, c), y[-1], y[:-1], reverse=False), changed=False)


def test_loops_that_stop():
    y = late(w)[::-1]
    stopping = scan(lambda c, r: (a * c + r, c, c > 2), y[0], y[1:])
    graph = FunctionGraph([w, a], [stopping[0]], clone=True)
    nodes = graph.toposort()
    align_sums(graph)
    assert graph.toposort() == nodes


def test_sums_of_another_type():
    y = late(w)
    whole = scan(
        lambda c, r: (pt.cast(c * a + r, "float32"), c),
        pt.cast(y[-1], "float32"),
        y[:-1],
        reverse=True,
    )
    aligned(whole, changed=False)
    flags = pt.join(0, pt.zeros(1, "bool"), w > 0)
    aligned(scan(lambda c, r: (c + r, c), flags[-1], flags[:-1], reverse=True), changed=False)


# -- any ---------------------------------------------------------------------------------------------


def _loop_through_a_sum(which: int) -> Any:
    """A loop over some of the rows of a random sum of windows, that may or may not fit together."""
    rng = random.Random(which)
    buffer = rng.choice([late(w), early(w), late(w, s), pt.zeros(w.shape[0] + 1)])
    for _ in range(rng.randint(0, 3)):
        rows = rng.choice([w, w * q, pt.exp(w), w[::-1]])
        kind = rng.randrange(4)
        if kind < 2:
            at = slice(1, None) if kind else slice(None, -1)
            write = rng.choice([pt.inc_subtensor, pt.inc_subtensor, pt.set_subtensor])
            buffer = write(buffer[at], rows)
        else:
            buffer = buffer + (late(rows) if kind == 2 else early(rows))
    step = rng.choice([lambda c: a * pt.tanh(c), lambda c: c, lambda c: c * a + s, lambda c: s])
    emit = rng.choice([lambda c: c, lambda c: c * c, lambda c: s])
    final, trace = through(buffer, rng.random() < 0.7, step, emit)
    return [final, trace, *([buffer] if rng.random() < 0.3 else [])]


@seed(0)
@RANDOM
@given(st.integers(0, 2**32 - 1))
def test_any_sum_of_windows(which):
    outputs = _loop_through_a_sum(which)
    graph = FunctionGraph([w, q, m, a, s], outputs, clone=True)
    before = graph.toposort()
    align_sums(graph)
    aligned(outputs, changed=graph.toposort() != before)


# -- derivatives -------------------------------------------------------------------------------------

x0, xs, n = pt.dscalar("x0"), pt.dvector("xs"), pt.lscalar("n")


def _legacy(order: int, wrt: Any, **over: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        step = (lambda c, a: pt.tanh(a * c)) if "n_steps" in over else None
        trace = pytensor.scan(
            step or (lambda r, c, a: pt.tanh(a * c + r)),
            outputs_info=[x0],
            non_sequences=[a],
            return_updates=False,
            **over,
        )
        y = (trace**2).sum()
        for _ in range(order):
            y = pytensor.grad(y, wrt)
    return y


@pytest.mark.sampled(1)
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(
    ("wrt", "over", "given", "at"),
    [
        (a, {"sequences": [xs]}, [xs], [[0.1, -0.3, 0.2]]),
        (x0, {"n_steps": 4}, [], []),
        (x0, {"n_steps": n}, [n], [5]),
    ],
)
def test_two_loops_for_any_derivative(order, wrt, over, given, at):
    """One forwards, one backwards, also where all rows of a trace of PyTensor's scan are read."""
    program = imported([x0, a, *given], _legacy(order, wrt, **over))
    rewritten(program.graph, lower, [0.4, 0.8, *at], rtol=1e-9, idempotent=False)
    assert [node.op.options.reverse for node in loops(program.graph)] == [False, True]
