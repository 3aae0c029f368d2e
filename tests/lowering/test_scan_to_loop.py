"""Scan -> a bare one: the same values, dtypes, shapes and errors, and no sequence or trace left."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type
from pytensor.typed_list import length

import loopax
from loopax.base.errors import LoopTypeError
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, Stack, evaluate
from loopax.lowering import lower
from loopax.lowering.scan_to_loop import scan_to_loop
from tests.random_programs.in_ir import program as random_program
from tests.support.compare import imported
from tests.support.kept import assert_kept, rewritten
from tests.test_properties import program, recipes

RANDOM = settings(max_examples=25, derandomize=True)


def ops(graph: Any) -> list[Any]:
    """Every op of a graph and of the bodies in it."""
    actual = []
    for node in graph.toposort():
        actual.append(node.op)
        actual += ops(node.op.fgraph) if hasattr(node.op, "fgraph") else []
    return actual


def assert_keeps(graph: FunctionGraph, *inputs: Any) -> FunctionGraph:
    """`scan_to_loop` leaves the meaning of ``graph`` as it was; the new graph."""
    rewritten(graph, scan_to_loop, inputs)
    assert not any(op.n_seqs or op.n_ys for op in ops(graph) if isinstance(op, Scan))
    return graph


def same(a: Any, b: Any) -> None:
    if isinstance(b, list):
        assert isinstance(a, list) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(b, np.random.Generator):
        assert a.bit_generator.state == b.bit_generator.state
    else:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, strict=True)


# -- random programs -------------------------------------------------------------------------------


@pytest.mark.slow
@RANDOM
@given(recipes())
def test_legacy_scans(recipe):
    inputs, outputs, values = program(recipe)
    graph = imported(inputs, outputs).graph
    lower(graph)
    assert_keeps(graph, *[np.asarray(x) for x in values])


@pytest.mark.slow
@RANDOM
@given(st.integers(0, 2**32 - 1))
def test_random_programs(which):
    assert_kept(random_program(which), [lower, scan_to_loop])


# -- traces that are lists -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_trace_of_generators_is_a_list(n, reverse):
    i, rng = pt.lscalar("i"), random_generator_type("rng")
    after, draw = pt.random.normal(rng=rng, return_next_rng=True)
    scan = Scan.from_body(
        BodyArgs(i, [], [rng], []), BodyOuts([after], [rng, draw]), ScanOptions(reverse=reverse)
    )
    start = random_generator_type("start")
    _, rngs, draws = scan.bind(ScanArgs(n, [], [start], []))
    graph = FunctionGraph([start], [rngs, draws, length(rngs)], clone=True)
    assert_keeps(graph, np.random.default_rng(1))


def test_a_list_of_generators_is_a_sequence():
    i, rng = pt.lscalar("i"), random_generator_type("rng")
    after, draw = pt.random.normal(rng=rng, return_next_rng=True)
    make = Scan.from_body(BodyArgs(i, [], [rng], []), BodyOuts([after], [rng]))
    use = Scan.from_body(BodyArgs(i, [rng], [], []), BodyOuts([], [draw]))
    start = random_generator_type("start")
    _, rngs = make.bind(ScanArgs(3, [], [start], []))
    (draws,) = use.bind(ScanArgs(3, [rngs], [], []))
    assert_keeps(FunctionGraph([start], [draws], clone=True), np.random.default_rng(1))


def shapes_by_value(stops: bool) -> tuple[FunctionGraph, Any]:
    """Rows whose length is the value of a state: not known before the loop starts."""
    i, m = pt.lscalar("i"), pt.lscalar("m")
    scan = Scan.from_body(
        BodyArgs(i, [], [m], []), BodyOuts([m], [pt.arange(m) + i], pt.ge(i, 1) if stops else None)
    )
    steps, m0 = pt.lscalar("steps"), pt.lscalar("m0")
    trace = scan.bind(ScanArgs(steps, [], [m0], []))[1]
    return FunctionGraph([steps, m0], [trace], clone=True), scan


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_rows_of_a_shape_not_known_before(n, stops):
    graph, _ = shapes_by_value(stops)
    graph = assert_keeps(graph, np.asarray(n), np.asarray(2))
    assert sum(isinstance(op, Stack) for op in ops(graph)) == 1


def test_a_bound_that_is_only_computed_is_not_allocated():
    i, s = pt.lscalar("i"), pt.dscalar("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s / 2], [s], s < 1))
    bound = pt.lscalar("bound")
    outs = scan.bind(ScanArgs(bound, [], [pt.constant(9.0, dtype="float64")], []))
    graph = FunctionGraph([bound], outs, clone=True)
    scan_to_loop(graph)
    _, trace, n_done, stopped = evaluate(graph, np.asarray(2**62))
    np.testing.assert_array_equal(trace, [9, 4.5, 2.25, 1.125, 0.5625])
    assert (n_done, stopped) == (5, True)


# -- what is made ----------------------------------------------------------------------------------


def running_sum(**options: Any) -> Scan:
    i, x, s = pt.lscalar("i"), pt.dscalar("x"), pt.dscalar("s")
    return Scan.from_body(
        BodyArgs(i, [x], [s], []), BodyOuts([s + x], [s, x]), ScanOptions(**options)
    )


def test_a_trace_that_is_a_list_is_made_in_a_loop_too():
    """It begins as an empty list, a constant in the body of the loop around it, which needs a hash."""
    xs, limit = pt.dvector("xs"), pt.dscalar("limit")

    def doubled(x):
        return loopax.scan(lambda s, _: (s * 2, s, s > limit), x, None, length=10**12)[1].sum()

    graph = imported([xs, limit], [loopax.map(doubled, xs)]).graph
    scans = graph.clone()
    scan_to_loop(graph)
    for rows in np.array([1.0, 5.0, 0.3]), np.array([]):
        same(*(evaluate(g, rows, np.asarray(4.0))[0] for g in (graph, scans)))


def test_an_output_that_nobody_reads_has_no_buffer():
    xs = pt.dvector("xs")
    outs = running_sum(name="sums").bind(ScanArgs(xs.shape[0], [xs], [pt.zeros(())], []))
    one = FunctionGraph([xs], outs[:1], clone=True)
    two = FunctionGraph([xs], outs[:2], clone=True)
    for graph, n_states in [(one, 1), (two, 2)]:
        assert_keeps(graph, np.arange(3.0))
        (loop,) = [op for op in ops(graph) if isinstance(op, Scan)]
        assert (loop.n_states, loop.options.name) == (n_states, "sums")


def test_a_row_made_by_a_loop_has_a_known_shape():
    """The inner trace's length is a constant of the step: no list, and an empty trace is (0, 2)."""
    i, j, x, s = pt.lscalar("i"), pt.lscalar("j"), pt.dvector("x"), pt.dscalar("s")
    inner = Scan.from_body(BodyArgs(j, [s.type("row")], [s], []), BodyOuts([s / 2], [s + j]))
    final, row = inner.bind(ScanArgs(2, [x], [s], []))
    outer = Scan.from_body(BodyArgs(i, [x], [s], []), BodyOuts([final], [row]))
    xs = pt.dmatrix("xs")
    trace = outer.bind(ScanArgs(xs.shape[0], [xs], [pt.ones(())], []))[1]
    for n in (0, 3):
        graph = assert_keeps(FunctionGraph([xs], [trace], clone=True), np.ones((n, 2)))
        assert not any(isinstance(op, Stack) for op in ops(graph))


def test_a_graph_without_a_loop_is_left_as_it_is():
    x = pt.dvector("x")
    graph = FunctionGraph([x], [pt.exp(x)], clone=True)
    before = graph.toposort()
    scan_to_loop(graph)
    assert graph.toposort() == before


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "message"), [(-1, "negative number"), (2, "Sequence 0 of .* does not")]
)
def test_the_same_errors(n, message):
    xs, steps = pt.dvector("xs"), pt.lscalar("steps")
    outs = running_sum().bind(ScanArgs(steps, [xs], [pt.zeros(())], []))
    graph = FunctionGraph([steps, xs], outs, clone=True)
    with pytest.raises(ValueError):
        evaluate(graph, np.asarray(n), np.arange(3.0))
    scan_to_loop(graph)
    with pytest.raises(ValueError, match=message):
        evaluate(graph, np.asarray(n), np.arange(3.0))


def test_a_row_that_shrinks_is_not_broadcast():
    i, s = pt.lscalar("i"), pt.dvector("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s[:1]], [s]))
    s0 = pt.dvector("s0")
    graph = FunctionGraph([s0], [scan.bind(ScanArgs(2, [], [s0], []))[1]], clone=True)
    with pytest.raises(LoopTypeError, match="cannot be stacked"):
        evaluate(graph, np.arange(3.0))
    scan_to_loop(graph)
    with pytest.raises(AssertionError, match="SpecifyShape"):
        evaluate(graph, np.arange(3.0))
