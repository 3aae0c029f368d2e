"""States and sequences that count become functions of the index."""

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify, scan, while_loop
from loopax.ir import Scan
from loopax.lowering.canonical.recognise_counters import recognise_counters
from tests.support.compare import imported
from tests.support.kept import rewritten

x, n = pt.dvector("x"), pt.lscalar("n")
start, small = pt.lscalar("start"), pt.iscalar("small")
INPUTS = [x, n, start, small]
steps = pt.maximum(n, 0)
CASES = [
    [np.linspace(0.1, 2.0, 7), np.int64(steps), np.int64(5), np.int32(2**31 - 3)]
    for steps in (7, 1, 0)
]


def recognised(*outputs, cases=CASES):
    return rewritten(imported(INPUTS, list(outputs)).graph, recognise_counters, *cases)


def loop_of(graph):
    (node,) = [node for node in graph.apply_nodes if isinstance(node.op, Scan)]
    return node.op


@pytest.mark.parametrize("increment", [1, -3, 0])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_state_that_counts(increment, reverse):
    def step(carry, _):
        k, total = carry
        return (k + increment, total + pt.cast(k, "float64") ** 2), k

    (k, total), ks = scan(step, init=(start, 0.0), length=steps, reverse=reverse)
    assert loop_of(recognised(k, total, ks)).n_states == 1


def test_fewer_than_no_steps_are_an_error_of_a_loop_that_only_counts():
    k, _ = scan(lambda k, _: (k + 2, None), init=start, length=n)
    graph = recognised(k)
    assert loop_of(graph).n_states == 1
    native = jaxify([n, start], k, backend="numba")
    assert native(3, 4) == 10
    with pytest.raises(ValueError, match="a loop takes 0 or more"):
        native(-2, 4)


def test_a_narrow_counter_wraps_around():
    def step(carry, _):
        k, total = carry
        return (k + np.int32(2), total + pt.cast(k, "float64")), None

    (k, total), _ = scan(step, init=(small, 0.0), length=steps)
    assert loop_of(recognised(k, total)).n_states == 1


def test_a_loop_that_stops_counts_the_steps_it_took():
    def step(carry):
        k, s = carry
        return k + 2, s * 0.5

    k, s = while_loop(lambda carry: carry[1] > 0.2, step, (start, 1.0 + 0 * x.sum()))
    assert loop_of(recognised(k, s)).n_states == 1


def test_a_sequence_in_even_steps():
    positions = pt.constant(np.arange(20, 6, -2))

    def step(total, j):
        return total + pt.cast(j, "float64"), j * 2

    for reverse in (False, True):
        total, twice = scan(step, init=0.0, xs=positions, reverse=reverse)
        assert loop_of(recognised(total, twice)).n_seqs == 0


@pytest.mark.parametrize(
    ("update", "first"),
    [
        (lambda k: k + 1.5, pt.constant(0.5)),  # another rounding
        (lambda k: k + start, start),  # no constant
        (lambda k: 2 * k, start),
        (lambda k: k + k, start),
    ],
    ids=["float", "variable", "doubles", "added to itself"],
)
def test_other_states_stay(update, first):
    last, _ = scan(lambda k, _: (update(k), None), init=first, length=n)
    assert loop_of(recognised(last)).n_states == 1


def test_a_sequence_that_is_no_line_stays():
    positions = pt.constant(np.array([0, 1, 3, 2]))
    total, _ = scan(lambda s, j: (s + pt.cast(j, "float64"), None), init=0.0, xs=positions)
    assert loop_of(recognised(total)).n_seqs == 1
