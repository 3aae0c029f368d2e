"""A trace that is read at its last row alone is not made."""

import jax
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.subtensor import Subtensor

from loopax import jaxify, scan
from loopax.ir import check, evaluate
from loopax.lowering.redundancy.remove_unused import remove_unused
from loopax.lowering.storage.read_last import read_last
from tests.support.reading import counts, kept, loop, n, s, x

LAST = {
    "-1": lambda t: t[-1],
    "n - 1": lambda t: t[x.shape[0] - 1],
    "its length - 1": lambda t: t[t.shape[0] - 1],
    "-1:, 0": lambda t: t[-1:][0],
    "-1:, -1": lambda t: t[-1:][-1],
    "-1:": lambda t: t[-1:],
    "flipped": lambda t: t[::-1][0],
    "the first of a flip, as a row": lambda t: t[::-1][:1][0],
    "a column, flipped": lambda t: t[::-1, 1][:1][0],
    "with the shape of a flip": lambda t: t[::-1].shape[0] * t[-1],
    "flipped twice": lambda t: t[::-1][::-1][-1],
    "up to the end": lambda t: t[: x.shape[0]][-1],
    "backwards": lambda t: t[:-2:-1],
    "a column": lambda t: t[-1, 1] + t[-1:, 0],
    "with the shape": lambda t: t.shape.sum() * t[-1],
}
FIRST = {"0": lambda t: t[0], ":1": lambda t: t[:1], "-n": lambda t: t[::-1][-1]}


def is_made_of_states(name, emitted, stops):
    _, trace, *_ = loop(emitted, stops=stops)
    graph = kept([LAST[name](trace)], [read_last], steps=(0, 1, 3, 12))
    assert counts(graph) == [(1 if emitted == "state" else 2, 0)]


@pytest.mark.parametrize("name", LAST)
def test_the_last_row(name):
    is_made_of_states(name, "other", False)


@pytest.mark.parametrize("name", ["-1", "its length - 1", "backwards"])
def test_of_a_loop_that_stops(name):
    is_made_of_states(name, "other", True)


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("emitted", ["state", "old"])
def test_of_a_state(emitted, stops):
    is_made_of_states("with the shape", emitted, stops)


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("name", FIRST)
def test_reversed_it_is_the_first_row(name, stops):
    _, trace, *_ = loop("state", stops=stops, reverse=True)
    assert counts(kept([FIRST[name](trace)], [read_last])) == [(1, 0)]
    assert counts(kept([trace[-1]], [read_last])) == [(1, 1)]


def test_where_there_surely_is_a_row_it_is_the_final():
    for stops in (False, True):
        final, trace, *_ = loop("state", stops=stops, length=7)
        graph = kept([final, trace[-1], trace[-1, 0]], [read_last], steps=[6, 7])
        final, row, entry = graph.outputs
        assert row is final
        assert entry.owner.inputs[0] is final


def test_what_stays():
    """Read otherwise it stays, and its last row is read of it, unless that is a state's final."""
    for read in (lambda t: t, lambda t: t[-2], lambda t: t[0]):
        for emitted in ("state", "other"):
            _, trace = loop(emitted)
            graph = kept([read(trace), trace[-1]], [read_last])
            assert counts(graph) == [(1, 1)]
    final, trace = loop("state", length=3)
    graph = kept([trace, trace[-1], trace[2], final], [read_last], steps=[3])
    assert graph.outputs[1] is graph.outputs[2] is graph.outputs[3]
    _, trace = loop("other", length=3)
    graph = kept([trace, trace[-1]], [read_last], steps=[3])
    assert isinstance(graph.outputs[1].owner.op, Subtensor)


def test_nothing_to_do():
    final, trace = loop("other")
    graph = FunctionGraph([x, s], [final, trace.sum()], clone=True)
    nodes = graph.toposort()
    read_last(graph)
    assert graph.toposort() == nodes


def test_rows_of_other_types():
    def step(c, r):
        return c, (r.sum() > 3, pt.cast(r, "int8"), pt.outer(r, c), pt.as_tensor(1.5))

    _, traces = scan(step, s, x)
    assert counts(kept([t[-1] for t in traces], [read_last, remove_unused])) == [(5, 0)]


def test_a_row_whose_shape_is_not_known_stays():
    _, trace = scan(lambda c, r: (c, pt.arange(r.sum().astype("int64") * 0 + 2)), s, x)
    assert counts(kept([trace[-1]], [read_last], steps=[1, 3])) == [(1, 1)]


def test_lists_stay():
    rng = random_generator_type("rng")

    def step(c, r):
        new, draw = pt.random.normal(rng=c, return_next_rng=True)
        return new, (new, draw)

    _, (states, draws) = scan(step, rng, x)
    graph = FunctionGraph([x, rng], [states[-1], draws[-1]], clone=True)
    read_last(graph)
    check(graph)
    assert counts(graph) == [(2, 1)]


def test_loops_in_loops():
    def outer(c, r):
        def inner(e, _):
            half = e * 0.5
            return half, (e + r, half)

        _, (ys, zs) = scan(inner, c, length=3)
        return zs[-1], ys[-1]

    _, trace = scan(outer, s, x)
    assert counts(kept([trace[-1]], [read_last])) == [(2, 0), (2, 0)]


def test_a_wrong_number_of_steps():
    """Negative, or another than there are rows: the errors are those of before."""
    _, trace = scan(lambda c, _: (c * 0.5, c), s, length=n)
    graph = FunctionGraph([s, n], [trace[-1]], clone=True)
    read_last(graph)
    for k, error in ((-1, ValueError), (0, IndexError)):
        with pytest.raises(error):
            evaluate(graph, np.ones(2), np.asarray(k))
    _, trace = loop(length=n)
    graph = FunctionGraph([x, s, n], [trace[-1]], clone=True)
    read_last(graph)
    with pytest.raises(ValueError):
        evaluate(graph, np.ones((3, 2)), np.ones(2), np.asarray(2))


# -- in JAX ------------------------------------------------------------------------------------------


def test_in_jax_no_step_is_an_error_still():
    _, trace = loop("other")
    graph = FunctionGraph([x, s], [trace[-1]], clone=True)
    read_last(graph)
    f = jaxify(graph)
    np.testing.assert_allclose(f(np.ones((1, 2)), np.ones(2)), [2.9, 2.9])
    with pytest.raises(IndexError):
        jax.jit(f)(np.ones((0, 2)), np.ones(2))
