"""What is the same at every step stops being a port; errors, shapes and types stay."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import explain, jaxify, scan
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, check, evaluate
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.lowering.redundancy.inline_invariants import inline_invariants
from tests.support.compare import loops, ports
from tests.support.kept import rewritten

n = pt.lscalar("n")
x, v = pt.dvector("x"), pt.dvector("v")
s, a = pt.dscalar("s"), pt.dscalar("a")
m = pt.dmatrix("m")
X, V = np.array([0.4, -0.9, 0.7]), np.array([0.3, -0.5])
M = np.arange(6.0).reshape(3, 2)
GIVEN, AT = [x, s, a, v, m], [X, 0.6, 0.7, V, M]


def inlined(outputs: Any, given: Any = GIVEN, at: Any = AT) -> FunctionGraph:
    """The graph after the pass, with the same values before and after it."""
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    return rewritten(graph, inline_invariants, at, rtol=1e-12, atol=1e-14)


def stays(outputs: Any, given: Any = GIVEN) -> None:
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    before = graph.toposort()
    inline_invariants(graph)
    assert graph.toposort() == before


def with_const(value: Any, step: Any = lambda c, r, k: c * r + k.sum()) -> Any:
    """The outputs of a loop over ``x`` with a constant of the type of ``value`` without its lengths."""
    value = pt.constant(np.asarray(value))
    i, r, c = INDEX_TYPE("i"), pt.dscalar(), pt.dscalar()
    k = value.type.clone(shape=(None,) * value.type.ndim)()
    op = Scan.from_body(BodyArgs(i, [r], [c], [k]), BodyOuts([step(c, r, k)], [c]))
    return op.bind(ScanArgs(x.shape[0], [x], [s], [value]))


# -- constants ---------------------------------------------------------------------------------------


def test_a_small_constant_is_written_into_the_body():
    assert ports(inlined(with_const(2.5))) == [(1, 1, 0, 1)]
    assert ports(inlined(with_const([2.5, np.nan]))) == [(1, 1, 0, 1)]
    assert ports(inlined(with_const(np.arange(64)))) == [(1, 1, 0, 1)]


def test_constants_that_stay():
    stays(with_const(np.arange(65.0)))
    stays(with_const(-0.0))  # frozen bodies may share it with 0.0
    # A type that says 1 would broadcast where the loop raises.
    stays(with_const([2.5], lambda c, r, k: (pt.stack([c, r]) * k).sum()))


def test_into_loops_in_loops():
    def step(c, r, k):
        w = k.type()
        inner = Scan.from_body(BodyArgs(INDEX_TYPE("i"), [], [c], [w]), BodyOuts([c * w.sum()], []))
        return inner.bind(ScanArgs(2, [], [c], [k]))[0] * r

    assert ports(inlined(with_const(2.5, step))) == [(1, 1, 0, 1), (0, 1, 0, 0)]
    assert ports(inlined(with_const(np.ones(99), step))) == [(1, 1, 1, 1), (0, 1, 1, 0)]


# -- sequences ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("xs", "left"),
    [
        (lambda: pt.alloc(s, x.shape[0]), 1),
        (lambda: pt.zeros(x.shape[0]), 0),
        (lambda: pt.zeros((x.shape[0], 3)), 0),
        (lambda: pt.alloc(v, x.shape[0], v.shape[0]), 1),
        (lambda: pt.alloc(v[None], x.shape[0], v.shape[0]), 1),
        (lambda: pt.second(x, s), 1),
        (lambda: pt.zeros_like(x), 0),
        (lambda: pt.zeros(x.shape[0])[::-1], 0),
        (lambda: pt.alloc(s, x.shape[0] + 2)[1:-1], 1),
    ],
)
def test_a_sequence_of_equal_rows_becomes_a_constant(xs, left):
    final, _ = scan(lambda c, r: (c * r[0] + r[1].sum(), None), s, (x, xs()))
    node = final.owner  # without the check of the front end, that all are of one length
    outs = node.op.make_node(x.shape[0], *node.inputs[1:]).outputs
    assert ports(inlined(outs)) == [(1, 1, left, 0)]


def test_filled_like_a_matrix():
    final, _ = scan(lambda c, r: (c * r[0].sum() + r[1].sum(), None), s, (m, pt.second(m, a)))
    assert ports(inlined([final])) == [(1, 1, 1, 0)]


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([2.0, 2.0, 2.0], (0, 1, 0, 0)),
        ([np.nan] * 3, (0, 1, 0, 0)),
        ([0.0, -0.0, 0.0], (1, 1, 0, 0)),
        ([1.0, 2.0, 1.0], (1, 1, 0, 0)),
        (np.ones((3, 70)), (0, 1, 1, 0)),
        (np.ones((3, 0)), (0, 1, 0, 0)),
        (np.ones((0, 2)), (1, 1, 0, 0)),
    ],
)
def test_constants_of_equal_rows(rows, left):
    final, _ = scan(lambda c, r: (c * 0.5 + r.sum(), None), s, pt.constant(np.asarray(rows)))
    graph = FunctionGraph(GIVEN, [final], clone=True)
    graph = inlined([final]) if left[0] == 0 else graph
    inline_invariants(graph)
    assert ports(graph) == [left]


def test_the_length_is_still_checked():
    final, _ = scan(lambda c, r: (c * r, None), s, x)
    op = final.owner.op
    outs = op.make_node(n, pt.alloc(a, x.shape[0]), s).outputs
    stays(outs, [*GIVEN, n])
    outs = op.make_node(x.shape[0], pt.alloc(a, x.shape[0]), s).outputs
    assert ports(inlined(outs)) == [(0, 1, 1, 0)]
    outs = op.make_node(n, pt.alloc(a, n), s).outputs
    graph = inlined(outs, [*GIVEN, n], [*AT, 3])
    assert ports(graph) == [(0, 1, 1, 0)]
    with pytest.raises(ValueError):
        evaluate(graph, *map(np.asarray, AT), np.asarray(-1))


# -- states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [X, X[:0]])
def test_a_state_that_is_passed_on(rows):
    final, ys = scan(lambda c, r: ((c[0] * r + c[1], c[1]), c[0] + c[1]), (s, a), x)
    graph = inlined([*final, ys], [x, s, a], [rows, 0.6, 0.7])
    assert ports(graph) == [(1, 1, 1, 1)]
    assert graph.outputs[1] is graph.inputs[2]


def test_one_after_the_other():
    """The second keeps its value because the first does; the third never did."""
    final, ys = scan(
        lambda c, r: ((c[0], c[0], c[1], c[3] * r + c[1] + c[2]), (c[1], c[2])), (s, s, a, s), x
    )
    assert ports(inlined([*final, *ys])) == [(1, 2, 1, 1)]
    zero = pt.constant(np.array(0.0))
    final, _ = scan(lambda c, r: ((zero, c[1] * r + c[0]), None), (zero, s), x)
    assert ports(inlined(final)) == [(1, 1, 0, 0)]


def test_a_state_of_a_loop_that_stops():
    final, ys, stopped = scan(lambda c, r: ((c[0] * r + c[1], c[1]), c[1], c[0] < 0), (s, a), x)
    assert ports(inlined([*final, ys, stopped])) == [(1, 1, 1, 1)]


def test_a_final_that_hangs_on_an_error_stays():
    final, _ = scan(lambda c, r: ((c[0] * r + c[1], c[1]), c[1]), (s, a), x)
    node = final[0].owner
    outs = node.op.make_node(n, *node.inputs[1:]).outputs
    graph = inlined(outs[1:2], [*GIVEN, n], [*AT, 3])
    assert ports(graph) == [(1, 2, 1, 0)]  # it is a constant for the step all the same
    with pytest.raises(ValueError):
        evaluate(graph, *map(np.asarray, AT), np.asarray(2))
    graph = inlined(outs[:2], [*GIVEN, n], [*AT, 3])
    assert ports(graph) == [(1, 1, 1, 0)]  # the other one says it
    with pytest.raises(ValueError):
        evaluate(graph, *map(np.asarray, AT), np.asarray(2))


def test_generators_are_passed_on():
    rng = random_generator_type("rng")
    final, _ = scan(lambda c, r: ((c[0], c[1] * r), None), (rng, s), x)
    graph = FunctionGraph([x, s, rng], final, clone=True)
    inline_invariants(graph)
    check(graph)
    assert ports(graph)[0][1] == 1 and graph.outputs[0] is graph.inputs[2]


def test_an_echoed_input_is_not_a_carry():
    """PyTensor issue 2252: what a step emits of its inputs is no state."""
    final, (ys, zs) = scan(lambda c, r: (c + 1, (r, a)), s, x)
    graph = inlined([final, ys, zs])
    assert ports(graph) == [(1, 1, 1, 0)]  # what is no longer read is for `remove_unused`
    assert graph.outputs[1] is graph.inputs[0]


# -- traces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [X, X[:0]])
@pytest.mark.parametrize("reverse", [False, True])
def test_traces_that_are_known(rows, reverse):
    i, r, c, k, w = INDEX_TYPE("i"), pt.dscalar(), pt.dscalar(), pt.dvector(), pt.dscalar()
    ys = [i, r, k, w, pt.constant([1.0, 2.0]), c]
    op = Scan.from_body(
        BodyArgs(i, [r], [c], [k, w]), BodyOuts([c * r], ys), ScanOptions(reverse=reverse)
    )
    outs = op.bind(ScanArgs(x.shape[0], [x], [s], [v, a]))
    graph = inlined(outs, [x, s, a, v], [rows, 0.6, 0.7, V])
    assert ports(graph) == [(1, 1, 2, 1)]
    outs = op.with_options(truncate_gradient=2).bind(ScanArgs(x.shape[0], [x], [s], [v, a]))
    stays(outs)
    outs = op.bind(ScanArgs(n, [x], [s], [v, a]))
    stays([outs[1], *outs[3:6]], [*GIVEN, n])  # nothing else is read that would raise
    graph = FunctionGraph([x, s, a, v, n], [outs[0], outs[2]], clone=True)
    inline_invariants(graph)
    assert isinstance(graph.outputs[1].owner.op, Scan)  # nothing else may ask whether x has n rows


def test_traces_of_a_loop_that_stops_stay():
    _, ys, _ = scan(lambda c, r: (c * r, (r, a), c > 0), s, x)
    stays(ys)


def test_a_loop_that_is_known_altogether():
    final, ys = scan(lambda c, r: (c, (r, c)), s, x)
    assert not ports(inlined([final, *ys]))


def test_from_one_loop_to_the_next():
    _, ys = scan(lambda c, r: (c * r, a), s, x)
    final, zs = scan(lambda c, r: (c + r, r), s, ys)
    assert ports(inlined([final, zs])) == [(0, 1, 1, 0)]


def test_what_an_inner_loop_passes_on():
    def outer(c, r):
        (d, e), _ = scan(lambda f, w: ((f[0] * w, f[1]), None), c, x)
        return (d + r, e), e

    final, ys = scan(outer, (s, a), x)
    assert ports(inlined([*final, ys])) == [(1, 1, 2, 0), (1, 1, 1, 0)]


def test_no_ones_are_read_in_the_second_gradient_of_a_sum():
    """PyTensor's rewrites make a constant of their fill, behind the first time the pass runs."""
    rows = pytensor.scan(
        lambda s: pt.tanh(a * s), outputs_info=[np.float64(0.5)], n_steps=20, return_updates=False
    )
    second = pytensor.grad(pytensor.grad(rows.sum(), a), a)
    f = jaxify([a], second)
    [forwards, back] = loops(explain(f).lowered)
    for node in (forwards, back):
        read = node.inputs[1 : 1 + node.op.n_seqs]
        assert not any(isinstance(v, Constant) for v in read)
    first = jaxify([a], pytensor.grad(rows.sum(), a))
    np.testing.assert_allclose(f(0.7), (first(0.7 + 1e-6) - first(0.7 - 1e-6)) / 2e-6, rtol=1e-6)
