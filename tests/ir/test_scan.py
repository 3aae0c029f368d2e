"""`Scan` as an op: its meaning, its identity, what it refuses."""

import pickle

import chex
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import infer_shape
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert

from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, check, evaluate
from tests.support.compare import MODES

XS = np.array([0.5, -1.0, 2.0, 3.0])


def running_sum(name=None, weight=1.0):
    """State s + weight * x and the trace of it times c, a vector."""
    i, x, s, c = pt.lscalar("i"), pt.dscalar("x"), pt.dscalar("s"), pt.dvector("c")
    new = s + weight * x
    return Scan.from_body(
        BodyArgs(i, [x], [s], [c]), BodyOuts([new], [new * c]), options=ScanOptions(name=name)
    )


def stopping(limit=3.0):
    """Doubles its state, and stops once that is above a limit."""
    i, s = pt.lscalar("i"), pt.dscalar("s")
    new = 2 * s
    return Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([new], [new], pt.gt(new, limit)))


def bound(scan=None):
    """Inputs and outputs of a program that is one loop."""
    xs, s0, c, n = pt.dvector("xs"), pt.dscalar("s0"), pt.dvector("c"), pt.lscalar("n")
    outputs = (scan or running_sum()).bind(ScanArgs(n, [xs], [s0], [c]))
    return [n, xs, s0, c], outputs


def values(n=4, rows=None):
    return [
        np.asarray(n),
        XS[: n if rows is None else rows],
        np.asarray(1.0),
        np.array([1.0, 10.0]),
    ]


# -- meaning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=["FAST_COMPILE", "FAST_RUN"])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_loop_means_its_recurrence(n, mode):
    inputs, outputs = bound()
    states = 1.0 + np.cumsum(XS[:n])
    expected = [
        np.asarray(states[-1] if n else 1.0),
        states[:, None] * np.array([1.0, 10.0]) if n else np.zeros((0, 2)),
    ]
    for actual in (
        pytensor.function(inputs, outputs, mode=mode)(*values(n)),
        evaluate(FunctionGraph(inputs, outputs, clone=True), *values(n)),
    ):
        assert [(x.shape, x.dtype) for x in actual] == [(x.shape, x.dtype) for x in expected]
        chex.assert_trees_all_close(actual, expected)


def test_the_index_counts_steps():
    i, s = pt.lscalar("i"), pt.lscalar("s")
    scan = Scan.from_body(BodyArgs(i, [], [s], []), BodyOuts([s + i], [i * i]))
    final, trace = scan.bind(ScanArgs(5, [], [pt.constant(100, dtype="int64")], []))
    graph = FunctionGraph([], [final, trace], clone=True)
    assert [x.tolist() for x in evaluate(graph)] == [110, [0, 1, 4, 9, 16]]


def test_zero_steps_do_not_alias_their_input():
    inputs, (final, _) = bound()
    start = np.asarray(1.0)
    n, xs, _, c = values(0)
    (actual,) = evaluate(FunctionGraph(inputs, [final], clone=True), n, xs, start, c)
    actual[...] = 7.0
    assert start == 1.0


def test_zero_steps_of_a_matrix_valued_trace():
    i, x, s = pt.lscalar("i"), pt.dmatrix("x"), pt.dvector("s")
    args = BodyArgs(i, [x], [s], [])
    scan = Scan.from_body(args, BodyOuts([x.sum(0) + s], [x @ x.T, s[None], i, x.sum(1)]))
    xs, s0 = pt.dtensor3("xs"), pt.dvector("s0")
    outputs = scan.bind(ScanArgs(xs.shape[0], [xs], [s0], []))
    actual = evaluate(FunctionGraph([xs, s0], outputs, clone=True), np.ones((0, 3, 2)), np.ones(2))
    assert [x.shape for x in actual] == [(2,), (0, 3, 3), (0, 1, 2), (0,), (0, 3)]
    assert [x.dtype for x in actual] == ["float64"] * 3 + ["int64", "float64"]


def test_a_constant_or_an_input_may_be_an_output():
    i, x, s = pt.lscalar("i"), pt.dscalar("x"), pt.dscalar("s")
    constant = pt.constant(2.5, dtype="float64")
    scan = Scan.from_body(BodyArgs(i, [x], [s], []), BodyOuts([constant], [s, x, i, constant]))
    xs = pt.dvector("xs")
    outputs = scan.bind(ScanArgs(xs.shape[0], [xs], [pt.zeros(())], []))
    graph = FunctionGraph([xs], outputs, clone=True)
    check(graph)
    actual = [x.tolist() for x in evaluate(graph, XS[:2])]
    assert actual == [2.5, [0.0, 2.5], [0.5, -1.0], [0, 1], [2.5, 2.5]]


# -- loops that stop ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "trace", "stopped"),
    [(10, [2.0, 4.0], True), (2, [2.0, 4.0], True), (1, [2.0], False), (0, [], False)],
)
def test_the_step_that_stops_is_counted_and_kept(bound, trace, stopped):
    final, ys, n_done, flag = stopping().bind(ScanArgs(bound, [], [pt.ones(())], []))
    actual = evaluate(FunctionGraph([], [final, ys, n_done, flag], clone=True))
    assert [x.tolist() for x in actual] == [[1.0, *trace][-1], trace, len(trace), stopped]
    assert [x.dtype for x in actual] == ["float64", "float64", "int64", "bool"]


def test_a_stopped_trace_has_the_length_it_reached():
    n = pt.lscalar("n")
    _, ys, _, _ = stopping().bind(ScanArgs(n, [], [pt.ones(())], []))
    shape = pytensor.function([n], ys.shape, mode="FAST_COMPILE")
    assert shape(10).tolist() == [2]


# -- identity ------------------------------------------------------------------------------------------


def test_equal_bodies_are_equal_loops():
    assert running_sum() == running_sum("another name")
    assert hash(running_sum()) == hash(running_sum("another name"))
    assert running_sum() != running_sum(weight=2.0)
    assert running_sum() != "a loop"


def test_how_a_body_divides_is_part_of_a_loop():
    i, u, v = pt.lscalar("i"), pt.dscalar("u"), pt.dscalar("v")
    one = Scan.from_body(BodyArgs(i, [u], [v], []), BodyOuts([u + v], []))
    other = Scan.from_body(BodyArgs(i, [], [u], [v]), BodyOuts([u + v], []))
    no_state = Scan.from_body(BodyArgs(i, [u, v], [], []), BodyOuts([], [u + v]))
    assert len({one, other, no_state}) == 3
    assert stopping() == stopping() and stopping() != stopping(4.0)


def test_merging_makes_equal_loops_one():
    inputs, first = bound(running_sum())
    second = running_sum("twin").bind(ScanArgs(inputs[0], [inputs[1]], [inputs[2]], [inputs[3]]))
    f = pytensor.function(inputs, [*first, *second], mode="FAST_COMPILE")
    assert sum(isinstance(n.op, Scan) for n in f.maker.fgraph.toposort()) == 1


def test_a_loop_pickles_also_after_it_has_run():
    inputs, outputs = bound(running_sum("sum"))
    before = outputs[0].owner.op
    graph = FunctionGraph(inputs, outputs, clone=True)
    expected = evaluate(graph, *values())
    after = pickle.loads(pickle.dumps(before))
    assert after == before and hash(after) == hash(before) and after.options.name == "sum"
    chex.assert_trees_all_close(evaluate(pickle.loads(pickle.dumps(graph)), *values()), expected)


def test_a_loop_clones():
    inputs, outputs = bound()
    graph = FunctionGraph(inputs, outputs, clone=True)
    copy = graph.clone()
    check(copy)
    chex.assert_trees_all_close(evaluate(copy, *values()), evaluate(graph, *values()))
    doubled = pytensor.graph.clone_replace(outputs, {inputs[2]: inputs[2] * 2})
    actual = evaluate(FunctionGraph(inputs, doubled, clone=True), *values())
    assert float(actual[0]) == 2.0 + XS.sum()


def test_a_loop_prints_with_its_body():
    _, outputs = bound(running_sum("sum"))
    text = pytensor.dprint(outputs, file="str")
    assert "Scan{sum}" in text and "Inner graphs:" in text and "Mul" in text.title()
    assert str(running_sum()) == "Scan{loop}" and str(stopping()) == "Scan{loop, stops}"


# -- shapes --------------------------------------------------------------------------------------------


def test_shapes_follow_without_running_the_loop():
    inputs, outputs = bound()
    shapes = infer_shape(outputs, inputs, [(), (pt.lscalar("rows"),), (), (pt.lscalar("width"),)])
    assert len(shapes[0]) == 0 and len(shapes[1]) == 2
    f = pytensor.function(inputs, outputs[1].shape, mode=MODES[1])
    assert f(*values()).tolist() == [4, 2]
    assert not any(isinstance(n.op, Scan) for n in f.maker.fgraph.toposort())


def test_a_trailing_shape_that_depends_on_a_constant_of_the_loop():
    i, k = pt.lscalar("i"), pt.lscalar("k")
    scan = Scan.from_body(BodyArgs(i, [], [], [k]), BodyOuts([], [pt.zeros((k, 2)) + i]))
    n = pt.lscalar("n")
    (ys,) = scan.bind(ScanArgs(3, [], [], [n]))
    assert ys.type.shape == (None, None, 2)
    f = pytensor.function([n], ys.shape, mode=MODES[1])
    assert f(5).tolist() == [3, 5, 2]
    assert not any(isinstance(node.op, Scan) for node in f.maker.fgraph.toposort())
    empty = scan.bind(ScanArgs(0, [], [], [n]))
    (actual,) = evaluate(FunctionGraph([n], empty, clone=True), np.asarray(5))
    assert actual.shape == (0, 5, 2)


# -- refused ---------------------------------------------------------------------------------------------


def test_a_wrong_number_of_inputs():
    with pytest.raises(TypeError, match=r"Scan\{loop\} takes 4 inputs, got 3"):
        running_sum().make_node(pt.lscalar(), pt.dvector(), pt.dscalar())


@pytest.mark.parametrize(
    "n", [pt.dscalar("n"), 2.0, pt.lvector("n"), pt.constant(True, dtype="bool")]
)
def test_n_steps_must_be_an_integer_scalar(n):
    with pytest.raises(TypeError, match="n_steps must be an integer scalar, got"):
        running_sum().bind(ScanArgs(n, [pt.dvector()], [pt.dscalar()], [pt.dvector()]))


def test_small_integers_are_n_steps():
    node = running_sum().make_node(pt.bscalar("n"), pt.dvector(), pt.dscalar(), pt.dvector())
    assert node.inputs[0].type.dtype == "int64"


@pytest.mark.parametrize(
    ("xs", "s0", "c"),
    [
        (pt.dmatrix(), pt.dscalar(), pt.dvector()),
        (pt.dvector(), pt.dvector(), pt.dvector()),
        (pt.dvector(), pt.dscalar(), pt.dscalar()),
        (pt.zvector(), pt.dscalar(), pt.dvector()),
    ],
)
def test_inputs_have_the_types_of_the_body(xs, s0, c):
    with pytest.raises(TypeError):
        running_sum().bind(ScanArgs(3, [xs], [s0], [c]))


def test_negative_n_steps():
    inputs, outputs = bound()
    graph = FunctionGraph(inputs, outputs, clone=True)
    with pytest.raises(ValueError, match="got -1 steps, but a loop takes 0 or more"):
        evaluate(graph, *values(-1, rows=0))


@pytest.mark.parametrize("rows", [3, 0])
def test_a_sequence_has_exactly_n_steps_rows(rows):
    inputs, outputs = bound()
    graph = FunctionGraph(inputs, outputs, clone=True)
    with pytest.raises(ValueError, match=f"takes 4 steps, but its sequence 0 has {rows} rows"):
        evaluate(graph, *values(4, rows=rows))
    with pytest.raises(ValueError, match="takes 2 steps, but its sequence 0 has 4 rows"):
        evaluate(graph, *values(2, rows=4))


def test_inputs_and_outputs_have_names():
    scan = running_sum()
    args = scan.split_inputs(list("nxsc"))
    assert args == ScanArgs("n", ["x"], ["s"], ["c"]) and args.flat() == list("nxsc")
    outs = stopping().split_outputs(["final", "ys", "n_done", "stopped"])
    assert (outs.finals, outs.traces, outs.n_done, outs.stopped) == (
        ["final"],
        ["ys"],
        "n_done",
        "stopped",
    )
    assert outs.flat() == ["final", "ys", "n_done", "stopped"]
    assert (scan.n_consts, len(scan.args.consts), scan.outs.stop) == (1, 1, None)
    assert stopping().outs.stop is not None


def test_a_state_that_is_a_view_leaves_the_rows_before_it_alone():
    """PyTensor's VM writes again to the memory behind a view that a function has returned."""
    i, x, s = pt.lscalar("i"), pt.dscalar("x"), pt.dscalar("s")
    total = Assert("small")(s + x, pt.lt(s, 100.0))
    scan = Scan.from_body(BodyArgs(i, [x], [s], []), BodyOuts([total], [total, total]))
    xs = pt.dvector("xs")
    outs = scan.bind(ScanArgs(xs.shape[0], [xs], [pt.zeros(())], []))
    run = pytensor.function([xs], outs, mode="FAST_COMPILE")
    final, first, second = run([0.5, -1.0, 2.0])
    assert final == 1.5 and first.tolist() == second.tolist() == [0.5, -0.5, 1.5]


def test_a_row_made_of_the_shape_of_a_state_has_that_shape_without_steps():
    i, x, s = pt.lscalar("i"), pt.dscalar("x"), pt.dvector("s")
    scan = Scan.from_body(BodyArgs(i, [x], [s], []), BodyOuts([s], [pt.zeros(s.shape) + x]))
    xs, start = pt.dvector("xs"), pt.dvector("start")
    rows = scan.bind(ScanArgs(xs.shape[0], [xs], [start], []))[1]
    for mode in MODES:
        run = pytensor.function([xs, start], rows, mode=mode)
        assert [run(np.zeros(n), np.ones(3)).shape for n in (0, 2)] == [(0, 3), (2, 3)]
