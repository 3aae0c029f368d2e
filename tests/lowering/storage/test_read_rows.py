"""Of a trace that is read at a few rows only these are kept."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph

from loopax import jaxify, scan
from loopax.ir import evaluate
from loopax.lowering.storage.read_last import read_last
from loopax.lowering.storage.read_rows import read_rows
from tests.support.compare import loops
from tests.support.kept import rewritten
from tests.support.random_loops import RANDOM
from tests.support.reading import ERRORS, counts, kept, loop, n, reads, s, x

# -- a few rows are states ---------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("read", "rows"),
    [
        (lambda t: t[-3:], 3),
        (lambda t: t[-2:-1], 2),
        (lambda t: t[-4::2], 4),
        (lambda t: t[-2] + t[-1], 2),
        (lambda t: t[::-1][:2], 2),
        (lambda t: t[:-3:-1].sum(), 2),
        (lambda t: t[-2:, 1], 2),
        (lambda t: t[-2:-1][0], 2),
        (lambda t: t[::-1, 1][1:2][-1], 2),
        (lambda t: t[-3:] * t.shape.sum(), 3),
    ],
)
def test_the_last_rows(read, rows, stops):
    _, trace, *_ = loop(stops=stops)
    graph = kept([read(trace)], [read_rows], steps=(0, 1, 2, 4, 12))
    assert counts(graph) == [(1 + rows, 0)]


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize(
    "read", [lambda t: t[0], lambda t: t[:2], lambda t: t[1], lambda t: t[1::-1]]
)
def test_the_first_rows(read, stops):
    """Of a loop that must take all its steps."""
    final, trace, *_ = loop(stops=stops)
    graph = kept([final, read(trace)], [read_rows], steps=(0, 1, 2, 4, 12))
    ((states, traces),) = counts(graph)
    assert traces == 0 and states in (2, 3)


@pytest.mark.parametrize("stops", [False, True])
def test_reversed(stops):
    final, trace, *_ = loop("state", stops=stops, reverse=True)
    assert counts(kept([final, trace[:2]], [read_rows])) == [(2, 0)]
    assert counts(kept([final, trace[-2:]], [read_rows])) == [(3, 0)]


def test_rows_of_a_state_are_the_states_before():
    """Each step but the last is one more state; those that are there already are not added again."""
    _, trace = loop("state")
    assert counts(kept([trace[-3:]], [read_rows])) == [(3, 0)]

    def step(c, r):
        a, _ = c
        new = a + r
        return (new, a), new

    (a, b), trace = scan(step, (s, s), x)
    assert counts(kept([trace[-2:], b], [read_rows])) == [(2, 0)]


def test_both_ends():
    _, trace = loop()
    graph = kept([trace[0] + trace[-1], trace[-2]], [read_rows])
    assert counts(graph) == [(4, 0)]


def test_a_negative_number_of_steps():
    _, trace = scan(lambda c, _: (c * 0.5, c), s, length=n)
    for read in (trace[-3:], trace[:2], trace[-40:], trace[:40]):
        graph = FunctionGraph([s, n], [read], clone=True)
        rewritten(graph, read_rows)
        with pytest.raises(ValueError):
            evaluate(graph, np.ones(2), np.asarray(-1))


# -- more rows: two loops ----------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_many_last_rows_are_a_loop_of_their_own(reverse):
    def step(c, r):
        i, a = c
        return (i + 1, a * 0.9 + r), (a + i, pt.sin(r))

    (i, final), (ys, zs) = scan(step, (0, s), x, reverse=reverse)
    read = (lambda t, k: t[:k]) if reverse else (lambda t, k: t[-k:])
    graph = kept([read(ys, 6), read(zs, 5).sum(), i, ys.shape], [read_rows], steps=(0, 3, 6, 7, 15))
    assert counts(graph) == [(2, 0), (2, 2)]
    # A trace that is read in whole would be joined from two: the loop stays one.
    assert len(loops(kept([read(ys, 6), zs], [read_rows], steps=(0, 15)))) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_the_index_goes_on(reverse):
    from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions

    i, r, c = pt.lscalar(), pt.dvector(), pt.dvector()
    op = Scan.from_body(BodyArgs(i, [r], [c], []), BodyOuts([c + r * i], [c * i]))
    op = op.with_options(**ScanOptions(reverse=reverse)._asdict())
    final, trace = op.bind(ScanArgs(x.shape[0], [x], [s], []))
    late, early = (trace[:6], trace[-6:])[:: 1 if reverse else -1]
    assert counts(kept([late, final], [read_rows], steps=(0, 4, 12, 15))) == [(1, 0), (1, 1)]
    graph = kept([early], [read_rows], steps=(0, 4, 12, 15))
    assert counts(graph) == [(1, 1)]
    assert "Minimum" in str(loops(graph)[0].inputs[0].owner.op)


# -- the first rows alone: fewer steps ---------------------------------------------------------------


@pytest.mark.parametrize("stops", [False, True])
def test_steps_that_nobody_reads_are_not_taken(stops):
    _, trace, *_ = loop(stops=stops)
    graph = kept([trace[:6], trace[2]], [read_rows])
    (node,) = loops(graph)
    assert (node.op.n_states, node.op.n_ys) == (1, 1)
    assert "Minimum" in str(node.inputs[0].owner.op)


def test_they_are_taken_where_a_state_is_read():
    final, trace, *_ = loop()
    assert counts(kept([trace[:6], final], [read_rows])) == [(1, 1)]
    _, trace, stopped = loop(stops=True)
    assert counts(kept([trace[:6], stopped], [read_rows])) == [(1, 1)]


def test_steps_that_might_raise_are_taken():
    _, trace = scan(lambda c, r: (c + r[c.sum().astype("int64")], c), s * 0, x)
    graph = FunctionGraph([x, s], [trace[:2]], clone=True)
    at = [np.ones((5, 2)), np.ones(2)]
    rewritten(graph, read_rows, at, errors=ERRORS)
    with pytest.raises(IndexError):
        evaluate(graph, *at)


def test_sequences_of_another_length_raise():
    _, trace = scan(lambda c, r: (c + r, c), s, x, length=n)
    for read in (trace[:2], trace[-2:], trace[:9], trace[-9:]):
        graph = FunctionGraph([x, s, n], [read], clone=True)
        rewritten(graph, read_rows)
        with pytest.raises(ValueError):
            evaluate(graph, np.ones((30, 2)), np.ones(2), np.asarray(29))


# -- what stays --------------------------------------------------------------------------------------


def test_what_stays():
    for read in (
        lambda t: t,
        lambda t: t[2:],
        lambda t: t[::2],
        lambda t: t[:-2],
        lambda t: t[-3:2],
        lambda t: t[[-1, -2]],
        lambda t: t * 2,
    ):
        _, trace = loop()
        graph = FunctionGraph([x, s], [read(trace)], clone=True)
        nodes = graph.toposort()
        read_rows(graph)
        assert graph.toposort() == nodes
    _, trace = loop(length=5)  # most of the rows
    assert counts(kept([trace[-3:]], [read_rows], steps=[5])) == [(1, 1)]
    _, trace, _ = loop(stops=True)
    assert counts(kept([trace[-5:]], [read_rows], steps=[0, 12])) == [(1, 1)]


def test_a_cut_derivative_keeps_its_loop():
    from loopax.ir import Scan

    final, trace = loop()
    op = final.owner.op
    assert isinstance(op, Scan)
    _, trace = op.with_options(truncate_gradient=3).make_node(*final.owner.inputs).outputs
    for read in (trace[-9:], trace[:9]):
        assert counts(kept([read], [read_rows], steps=[0, 12])) == [(1, 1)]


def test_loops_in_loops():
    def outer(c, r):
        final, zs = scan(lambda e, _: (e * 0.5, e + r), c, length=9)
        return final, zs[-2:]

    _, trace = scan(outer, s, x)
    assert counts(kept([trace], [read_rows], steps=[0, 3])) == [(1, 1), (3, 0)]


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_reads(number):
    @seed(number)
    @RANDOM
    @given(
        st.booleans(),
        st.booleans(),
        st.sampled_from(["state", "old", "other"]),
        st.sampled_from([None, n, 12]),
        reads(),
    )
    def holds(stops, reverse, emitted, length, read):
        _, trace, *_ = loop(emitted, stops=stops, reverse=reverse, length=length)
        steps = trace.shape[0] if stops else x.shape[0]
        kept([read(trace, steps)], [read_last, read_rows], steps=(0, 1, 3, 6, 12))

    holds()


# -- in JAX ------------------------------------------------------------------------------------------


def test_in_jax_a_number_of_steps_stays_static():
    """Its traces are arrays, and reverse mode goes through it, as before."""
    _, trace = scan(lambda c, _: (c * 1.5, pt.sin(c)), s, length=n)
    start = np.ones(2)
    for read in (lambda t: t[-2:], lambda t: t[:9]):
        graph = FunctionGraph([s, n], [read(trace)], clone=True)
        expected = jaxify([s, n], read(trace))(start, 12)
        for run in (read_last, read_rows):
            run(graph)
        f = jaxify(graph)
        actual = f(start, 12)
        assert isinstance(actual, jax.Array)
        np.testing.assert_allclose(actual, expected)
        jax.grad(lambda v, f=f: f(v, 12).sum())(start)
