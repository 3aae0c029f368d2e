"""Equal ports become one, and nothing else does."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import scan
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.lowering.redundancy.merge_inputs import merge_inputs
from tests.support.compare import ports
from tests.support.kept import rewritten

x = pt.dvector("x")
s, a = pt.dscalar("s"), pt.dscalar("a")
X = np.array([0.4, -0.9, 0.7])


def merged(outputs: Any, given: Any = (x, s, a), at: Any = (X, 0.6, 0.7)) -> list[Any]:
    """Of each loop that is left: sequences, states, constants, traces. The values are as before."""
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    return ports(rewritten(graph, merge_inputs, at, rtol=1e-12, atol=1e-14))


def test_equal_sequences():
    """One variable, one computation; the last differs in a number."""
    rows = (x, x, x * 2, x * 2, x * 3)
    final, ys = scan(lambda c, r: (c + sum(r), r[1] * r[3]), s, rows)
    assert merged([final, ys]) == [(3, 1, 0, 1)]


def test_equal_constants():
    def of(k):
        i, r, c, p, q = INDEX_TYPE(), *(pt.dscalar() for _ in range(4))
        op = Scan.from_body(BodyArgs(i, [r], [c], [p, q]), BodyOuts([c * p + r * q], []))
        return merged(op.bind(ScanArgs(x.shape[0], [x], [s], k)))

    assert of([a, a]) == of([pt.sin(a), pt.sin(a)]) == [(1, 1, 1, 0)]
    assert of([a, s]) == of([pt.sin(a), pt.cos(a)]) == [(1, 1, 2, 0)]
    assert of([pt.constant(np.array(np.nan)), pt.constant(np.array(np.nan))]) == [(1, 1, 1, 0)]
    assert of([pt.constant(np.array(0.0)), pt.constant(np.array(-0.0))]) == [(1, 1, 2, 0)]


def test_types_that_differ_stay():
    i, c = INDEX_TYPE(), pt.dscalar()
    p, q = pt.dvector(), pt.TensorType("float64", (3,))()
    op = Scan.from_body(BodyArgs(i, [], [c], [p, q]), BodyOuts([c * p.sum() * q.sum()], []))
    given = pt.specify_shape(x, 3)
    assert merged(op.bind(ScanArgs(2, [], [s], [given, given]))) == [(0, 1, 2, 0)]


def test_states_that_step_alike():
    def step(c, r):
        p, q, u, w = c
        return (p * r + a, q * r + a, u * r + q, w * r + p), (p * q, q * p, u)

    final, ys = scan(step, (s, s, s, s), x)
    assert merged([*final, *ys]) == [(1, 2, 1, 2)]


def test_states_that_read_one_another():
    """Equal as long as both are; the third starts alike and goes another way two steps later."""

    def step(c, r):
        p, q, u, w = c
        return (q * r, p * r, w * r, u * r + 1), p - q

    final, ys = scan(step, (s, s, s, s), x)
    assert merged([*final, ys]) == [(1, 3, 0, 1)]


def test_states_that_start_apart_stay():
    final, ys = scan(lambda c, r: ((c[0] * r, c[1] * r), c[0]), (s, a), x)
    assert merged([*final, ys]) == [(1, 2, 0, 1)]


def test_equal_traces():
    final, ys = scan(lambda c, r: (c * r, (c, c, c * r, r * c, c * r)), s, x)
    assert merged([final, *ys]) == [(1, 1, 0, 3)]


def test_what_merges_downstream():
    """The traces of the first loop become one, and so the sequences of the second."""
    _, ys = scan(lambda c, r: (c * r, (c, c)), s, x)
    final, zs = scan(lambda c, r: (c + r[0] * r[1], r[0]), s, tuple(ys))
    assert merged([final, zs]) == [(1, 1, 0, 1), (1, 1, 0, 1)]


def test_a_loop_that_stops():
    final, ys, stopped = scan(
        lambda c, r: ((c[0] * r[0], c[1] * r[1]), (c[0], c[1]), c[1] < 0), (s, s), (x, x)
    )
    assert merged([*final, *ys, stopped, stopped.owner.outputs[-2]]) == [(1, 1, 0, 1)]


def test_generators():
    rngs = [random_generator_type("rng"), random_generator_type("other")]

    def step(c, r):
        drawn = [pt.random.normal(rng=g, return_next_rng=True) for g in c[:2]]
        return (*(g for g, _ in drawn), c[2] + drawn[0][1] * drawn[1][1]), None

    for start, n_states in (([rngs[0]] * 2, 2), (rngs, 3)):
        final, _ = scan(step, (*start, s), x)
        at = [X, 0.6, np.random.default_rng(1), np.random.default_rng(2)]
        assert merged([final[-1]], [x, s, *rngs], at) == [(1, n_states, 0, 0)]


def test_an_echoed_input_is_not_a_carry():
    """PyTensor issue 2252: a constant and a state of one initial value."""
    final, ys = scan(lambda c, r: (c * r, (c, a, r)), a, x)
    assert merged([final, *ys]) == [(1, 1, 1, 3)]


def test_loops_in_loops():
    def outer(c, r):
        (p, q), (ys, zs) = scan(lambda d, w: ((d[0] * w[0], d[1] * w[1]), d), (c, c), (x, x))
        return p + q * r, (ys, zs)

    final, ys = scan(outer, s, x)
    assert merged([final, *ys]) == [(1, 1, 1, 1), (1, 1, 0, 1)]


def test_nothing_to_merge():
    final, ys = scan(lambda c, r: ((c[0] * r, c[1] * r + a), (c[0], r)), (s, a), x)
    graph = FunctionGraph([x, s, a], [*final, *ys], clone=True)
    before = graph.toposort()
    merge_inputs(graph)
    assert graph.toposort() == before
