"""What is zero at every step goes, and nothing else does."""

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import cond, scan
from loopax.facts.elementwise import is_elementwise
from loopax.ir import BodyArgs, BodyOuts, Cond, Scan, ScanArgs, evaluate
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.lowering.redundancy.fold_zeros import fold_zeros
from tests.lowering.nets_of_loops import INPUTS, net
from tests.lowering.nets_of_loops import values as values_of
from tests.support.compare import loops
from tests.support.kept import rewritten

x, s, a, n = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a"), pt.lscalar("n")
v, m = pt.dvector("v"), pt.dmatrix("m")
AT = {
    x: np.array([0.4, -0.9, 0.7]),
    s: np.asarray(0.6),
    a: np.asarray(0.7),
    n: np.asarray(3),
    v: np.array([0.3, -0.5]),
    m: np.array([[0.5, 0.1], [0.2, 0.4]]),
}
ZERO = pt.constant(0.0, dtype="float64")


def folded(*outputs: Any, **changed: Any) -> FunctionGraph:
    """The graph after the pass, which has the same values, dtypes and shapes."""
    at = [np.asarray(changed.get(w.name, z)) for w, z in AT.items()]
    return rewritten(FunctionGraph([*AT], list(outputs), clone=True), fold_zeros, at, rtol=1e-13)


def states(*outputs: Any, **changed: Any) -> list[int]:
    return [node.op.n_states for node in loops(folded(*outputs, **changed))]


def ops(graph: Any) -> list[str]:
    nodes = loops(graph)[0].op.fgraph.toposort()
    return [str(node.op.scalar_op) for node in nodes if hasattr(node.op, "scalar_op")]


def run(step: Any, *starts: Any, xs: Any = x, **options: Any) -> Any:
    return scan(step, starts, xs, **options)


# -- what goes ---------------------------------------------------------------------------------------


def test_a_state_that_stays_zero():
    (p, q), ys = run(lambda c, r: ((c[0] + 0.0 * r, c[1] * a + c[0] * r), c[1] + c[0]), ZERO, s)
    graph = folded(p, q, ys)
    (node,) = loops(graph)
    assert node.op.n_states == 1 and ops(graph).count("add") == 0


def test_states_that_are_zero_together():
    (p, q, z), _ = run(
        lambda c, r: ((c[1] * r, c[0] * a - c[1], c[2] + c[0]), None), ZERO, pt.zeros_like(s), s
    )
    assert states(p, q, z) == [1]


def test_the_assumption_is_taken_back():
    """All start at zero; the last one does not stay so, and with it go those that follow from it."""
    (p, q, z), _ = run(lambda c, r: ((c[1] * r, c[2] * a, c[2] + r), None), ZERO, ZERO, ZERO)
    assert states(p, q, z) == [3]


def test_zero_sequences_and_constants():
    def step(c, r):
        row, zero = r
        return c * row + zero + a * zero, c + zero

    _, ys = scan(step, s, (x, pt.zeros_like(x)))
    assert ops(folded(ys)) == ["mul"]


def test_zeros_that_are_carried_from_loop_to_loop():
    (p, q), ys = run(lambda c, r: ((c[0] * r, c[1] + c[0] + a), c[0]), ZERO, s)
    (t, u), _ = run(lambda c, r: ((c[0] * r, c[1] * a + c[0]), None), p, q, xs=ys)
    assert states(u) == [1, 1]


@pytest.mark.parametrize("reverse", [False, True])
def test_loops_that_stop_and_run_backwards(reverse):
    def step(c, r):
        p, q = c
        return (p * r, q + p + r), q + p, q > 0.9

    (p, q), ys, stopped = scan(step, (ZERO, s), x, reverse=reverse)
    assert states(p, q, ys, stopped) == [1]


def test_vectors_and_matrices():
    zero = pt.zeros_like(v)
    (p, q), _ = run(
        lambda c, r: ((c[0] + pt.dot(m, c[0] * 2), pt.dot(m, c[1]) + c[0]), None), zero, v
    )
    assert states(p, q) == [1]


def test_bodies():
    def inner(c, r):
        (p, q), _ = scan(lambda e, w: ((e[0] * w, e[1] + e[0]), None), (pt.zeros(()), c), x)
        return q * r + p, None

    final, _ = scan(inner, s, x)
    assert states(final) == [1, 1]

    def chosen():
        (_, q), _ = run(lambda c, r: ((c[0] * r, c[1] + c[0]), None), ZERO, s)
        return q

    branch = cond(s > 0, chosen, lambda: s)
    graph = folded(branch)
    (node,) = (k for k in graph.toposort() if isinstance(k.op, Cond))
    assert [k.op.n_states for k in loops(node.op.fgraph)] == [1]


def test_no_steps():
    (p, q), ys = run(lambda c, r: ((c[0] * r, c[1] + c[0]), c[0] * v), ZERO, s)
    assert states(p, q, ys, x=np.zeros(0)) == [1]


# -- what stays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [-0.0, np.nan, np.inf, 1e-300])
def test_what_is_not_zero(start):
    p, _ = scan(lambda c, r: (c * r, None), pt.constant(start, dtype="float64"), x)
    assert states(p) == [1]


def test_integers():
    (p, _), _ = run(lambda c, r: ((c[0] * 3, c[1]), None), pt.constant(0, dtype="int64"), s)
    assert states(p) == [2]


def test_parts_that_are_integers():
    """A Join of floats and integers is a float."""
    joined = pt.join(0, pt.zeros(1), x.astype("int64") + 3)
    final, ys = scan(lambda c, r: (c + r, c * r), s, joined)
    folded(final, ys, x=np.array([5.0, 7.0]))


def test_a_state_that_changes_its_shape():
    """It is zero, but not the zeros that it started with."""
    row, state = pt.dscalar(), pt.dvector()
    loop = Scan.from_body(
        BodyArgs(INDEX_TYPE(), [row], [state], []), BodyOuts([state[1:] * row], [state.sum()])
    )
    final, ys = loop.bind(ScanArgs(x.shape[0], [x], [pt.zeros(5)], []))
    assert folded(final, ys).outputs[0].owner.op == loop


def test_terms_that_a_shape_hangs_on():
    zero = pt.zeros_like(v)
    _, ys = run(lambda c, r: ((c[0] * r, c[1] * r), c[0] + c[1]), zero, s)
    folded(ys)
    _, ys = run(lambda c, r: ((c[0] * r, c[1] * r), (c[0] + v) * c[1]), zero, s)
    assert ops(folded(ys)).count("add") == 0


@pytest.mark.parametrize(
    ("out", "sums"),
    [
        (m + m * (m @ pt.zeros_like(m)), 0),
        (m + pt.zeros_like(m), 1),
        (m * pt.zeros_like(m) + m + v, 1),
    ],
    ids=["a product", "written as zeros", "one of several"],
)
def test_products_outside_of_loops(out, sums):
    """A term that somebody has written as zeros stays, for its length is to fit."""
    nodes = folded(out).apply_nodes
    assert sum(is_elementwise(node, ps.Add) for node in nodes) == sums


def test_terms_that_a_dtype_hangs_on():
    """Float32 that are added as float64, because of a zero."""
    f, g = pt.constant(np.float32(0.1)), s.astype("float32")

    def step(c, r):
        return (c[0] * r, c[1] * r), f + g + c[0]

    _, ys = run(step, ZERO, s)
    folded(ys)
    short = pt.constant(100, dtype="int8")
    _, ys = run(lambda c, r: ((c[0] * r, c[1]), x.astype("int8") + short + c[0]), ZERO, s)
    folded(ys, x=np.array([100.0]))


# -- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "rows"), [(-1, 3), (2, 3)])
def test_errors_of_a_loop_that_goes(steps, rows):
    row, state = pt.dscalar(), pt.dscalar()
    loop = Scan.from_body(
        BodyArgs(INDEX_TYPE(), [row], [state], []), BodyOuts([state * row], [state])
    )
    final, _ = loop.bind(ScanArgs(n, [x], [ZERO], []))
    graph = FunctionGraph([n, x], [final], clone=True)
    at = np.asarray(steps), np.ones(rows)
    for change in (lambda graph: None, fold_zeros):
        change(graph)
        with pytest.raises(ValueError, match="steps|rows"):
            evaluate(graph, *at)
    assert not loops(graph)
    assert evaluate(graph, np.asarray(3), np.ones(3))[0] == 0


# -- programs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
def test_nets_of_loops(number):
    graph = FunctionGraph(INPUTS, net(number + 30, 3), clone=True)
    cases = [values_of(rows, number) for rows in (0, 3)]
    rewritten(graph, fold_zeros, *cases, rtol=1e-9, atol=1e-12)
