"""What nobody reads leaves the loop: less to compute, and the same values."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import cond, scan
from loopax.importer.import_graph import import_graph
from loopax.ir import Call, Cond, Scan, check, evaluate
from loopax.ir.derivatives.pullback import PullbackRule
from loopax.lowering import lower
from loopax.lowering.redundancy.remove_unused import remove_unused
from tests.support.assorted_loops import X, a, m, s, v, x
from tests.support.bare_loops import While
from tests.support.compare import loops, ports
from tests.support.kept import rewritten

VALUES = [X, np.asarray(0.6), np.asarray(0.7)]


def kept(outputs: Any, given: Any = (x, s, a), at: Any = VALUES) -> FunctionGraph:
    """The graph that is left, with the same values before and after the pass."""
    return rewritten(FunctionGraph(list(given), list(outputs), clone=True), remove_unused, at)


def wide() -> Any:
    """Three states: p feeds q, and t knows nobody; rows and constants of their own."""

    def step(c, r):
        p, q, t = c
        row, other = r
        return (p * a, q + p + row, t * pt.sin(other)), (p, q * s, t + a)

    return scan(step, (s, s, s), (x, x**2))


# -- Scan --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "left"),
    [
        (lambda f, ys: [f[0]], (0, 1, 1, 0)),
        (lambda f, ys: [f[1]], (1, 2, 1, 0)),
        (lambda f, ys: [f[2]], (1, 1, 0, 0)),
        (lambda f, ys: [ys[0]], (0, 1, 1, 1)),
        (lambda f, ys: [ys[1]], (1, 2, 2, 1)),
        (lambda f, ys: [ys[2]], (1, 1, 1, 1)),
        (lambda f, ys: [f[0], ys[2]], (1, 2, 1, 1)),
        (lambda f, ys: [*f, *ys], (2, 3, 2, 3)),
    ],
)
def test_what_is_read_stays(read, left):
    assert ports(kept(read(*wide()))) == [left]


def test_states_that_only_feed_one_another_go_together():
    def step(c, r):
        p, q, t = c
        return (q + r, pt.sin(p), t * a), None

    (_, _, t), _ = scan(step, (s, s, s), x)
    assert ports(kept([t])) == [(0, 1, 1, 0)]


def test_a_state_that_is_not_its_own_successor():
    """Of which only the row is read, and that comes from the state before."""

    def step(c, r):
        p, q = c
        return (r, p), q

    _, ys = scan(step, (s, s), x)
    assert ports(kept([ys])) == [(1, 2, 0, 1)]


def test_what_says_that_a_loop_stops_stays():
    def step(c, r):
        p, q, t = c
        return (p + r, q * a, t + 1), (q, t * r), p > 0.5

    (_, q, _), _, stopped = scan(step, (s, s, s), x)
    assert ports(kept([q])) == [(1, 2, 1, 0)]
    n_done = stopped.owner.outputs[-2]
    assert ports(kept([stopped, n_done])) == [(1, 1, 0, 0)]


def test_what_only_an_unread_loop_read():
    """From the outputs back: the first loop's trace was read by a state that nobody reads."""
    _, (ys, zs) = scan(lambda c, r: (c * r, (c, r * a)), s, x)
    (final, _), _ = scan(lambda c, r: ((c[0] + r[0], c[1] * r[1]), None), (s, s), (ys, zs))
    assert ports(kept([final])) == [(1, 1, 0, 1), (1, 1, 0, 0)]


def test_loops_in_loops():
    """What an inner loop does not read is not carried to it either: all in one go."""

    def outer(c, r):
        p, q = c
        (d, _), ys = scan(lambda e, _: ((e[0] * 2, e[1] + q * a), e[1]), (p, r), length=2)
        return (d, q + r), ys.sum()

    (p, _), _ = scan(outer, (s, s), x)
    assert ports(kept([p])) == [(0, 1, 0, 0), (0, 1, 0, 0)]


def test_a_sequence_that_is_not_read_still_says_its_length():
    n = pt.lscalar("n")
    final, _ = scan(lambda c, r: (c * a, None), s, x, length=n)
    graph = FunctionGraph([x, s, a, n], [final], clone=True)
    for run in (lambda graph: None, remove_unused, lower):
        run(graph)
        with pytest.raises(ValueError, match="does not have as many rows"):
            evaluate(graph, *VALUES, np.asarray(3))


def test_generators_go_and_stay():
    rng = random_generator_type("rng")

    def step(c, r):
        state, z, other = c
        state, noise = pt.random.normal(rng=state, return_next_rng=True)
        return (state, z + noise, other * r), None

    (state, z, other), _ = scan(step, (rng, s, s), x)
    given = [rng, x, s]
    for outs, left in (([other], (1, 1, 0, 0)), ([z], (0, 2, 0, 0)), ([state], (0, 1, 0, 0))):
        graph = FunctionGraph(given, outs, clone=True)
        remove_unused(graph)
        check(graph)
        assert ports(graph) == [left]


# -- Cond --------------------------------------------------------------------------------------------


def test_branches():
    p, q, r = cond(
        s > 0,
        lambda: (x.sum(), a * 2, scan(lambda c, w: (c * w, c), a, x)[1]),
        lambda: (s, s * 2, x),
    )

    def op(*outs):
        (actual,) = {v.owner.op for v in kept(outs).outputs}
        assert isinstance(actual, Cond)
        return actual.n_outs, len(actual.fgraph.inputs)

    assert op(q) == (1, 2)
    assert op(p) == (1, 2)
    assert op(q, p) == (2, 3)
    assert op(p, q, r)[0] == 3


def test_in_branches():
    def branch():
        (p, _), _ = scan(lambda c, r: ((c[0] * r, c[1] + a), c[1]), (s, s), x)
        return p

    graph = kept([cond(s > 0, branch, lambda: s)])
    (op,) = (node.op for node in graph.toposort() if isinstance(node.op, Cond))
    assert ports(op.fgraph) == [(1, 1, 0, 0)]


def test_bare_loops():
    c, d, e, k, t = (pt.dscalar(name) for name in "cdekt")
    op = While.from_body([c, d, e], [k, t], [c + k, d * t, d + e], c < 5)
    outs = op.bind(s < 5, [s, s, s], [a, s])

    def left(*outs):
        actual = kept(outs).outputs[0].owner.op
        return actual.n_states, actual.n_consts

    assert left(outs[0]) == (1, 1)
    assert left(outs[1]) == (2, 2)
    assert left(outs[2]) == (3, 2)


# -- ops that are their graph ------------------------------------------------------------------------


def packed(**options: Any) -> Any:
    u, w, z = pt.dscalars("u", "w", "z")
    return OpFromGraph([u, w, z], [u + w, w * z, u - 1], **options)


def calls(*outs: Any) -> list[tuple[int, int]]:
    """Inputs and outputs of each call that is left."""
    graph = kept(outs, (s, a), VALUES[1:])
    nodes = [n for n in graph.toposort() if isinstance(n.op, OpFromGraph | Call)]
    return [(len(n.inputs), len(n.outputs)) for n in nodes]


def test_packed_graphs():
    op = packed()
    one = op(s, a, s)
    assert calls(one[0]) == [(2, 1)]
    assert calls(one[2]) == [(1, 1)]
    assert calls(one[0], one[1]) == [(3, 2)]
    assert calls(op(s, a, one[2])[0]) == [(2, 1)]  # what was made for an input that is gone
    op.connection_pattern(one[0].owner)  # which PyTensor keeps once it was asked for
    assert calls(one[0]) == [(2, 1)]


def test_packed_graphs_of_one_op_stay_so():
    """Each has the outputs that one of them needs, so that equal ones can still be merged."""
    op, equal = packed(), packed()
    assert op == equal
    graph = kept([op(s, a, s)[1], equal(a, a, s)[2]], (s, a), VALUES[1:])
    first, second = (v.owner for v in graph.outputs)
    assert first.op == second.op
    assert (len(first.inputs), len(first.outputs)) == (3, 2)


@pytest.mark.parametrize(
    "options",
    [
        {"inline": True},
        {"pullback": lambda inputs, outputs, cotangents: [cotangents[0]] * 3},
        {"pushforward": lambda inputs, tangents: [tangents[0]] * 3},
        {"connection_pattern": [[True] * 3] * 3},
    ],
)
def test_packed_graphs_that_say_more(options):
    assert calls(packed(**options)(s, a, s)[0]) == [(3, 3)]


def test_ops_of_a_fixed_signature():
    class Named(OpFromGraph):
        pass

    u, w = pt.dscalars("u", "w")
    assert calls(Named([u, w], [u * 2, w])(s, a)[0]) == [(2, 2)]


def test_calls():
    u, w = pt.dscalars("u", "w")
    body = FunctionGraph([u, w], [u * 2, w + u]).freeze()
    assert calls(Call(body).make_node(s, a).outputs[0]) == [(1, 1)]
    own = OpFromGraph(
        [u, w], [u * 2, w + u], pullback=lambda inputs, outputs, cotangents: cotangents
    )
    back = PullbackRule(own, own.input_types, import_graph)
    assert calls(Call(body, back).make_node(s, a).outputs[0]) == [(2, 2)]


# -- cotangents that nobody asks for -----------------------------------------------------------------


def costs() -> dict[str, Any]:
    """Of a loop, a branch and a bare loop, each of `s` and `a` in two outputs."""
    (p, q), _ = scan(lambda c, r: ((c[0] * pt.sin(r), pt.tanh(c[1] + a * r)), None), (s, s), x)
    return {
        "scan": (p, q),
        "cond": cond(s > 0, lambda: (s * 2, pt.exp(a * s)), lambda: (s, a * x.sum())),
    }


@pytest.mark.parametrize("kind", ["scan", "cond"])
def test_pullbacks_of_disconnected_outputs(kind):
    """One output has no cotangent: the loop back has nothing of it, however many inputs are asked for."""
    p, q = costs()[kind]

    def size(*outs: Any) -> int:
        graph = kept(outs)
        ops = [node.op for node in graph.toposort() if isinstance(node.op, Scan | Cond)]
        assert ops
        return sum(len(op.fgraph.inputs) + len(op.fgraph.outputs) for op in ops)

    both = size(*pytensor.grad(p + q, [s, a]))
    one = pytensor.grad(p, [s, a], disconnected_inputs="ignore")
    assert size(*one) < both
    assert size(one[0]) <= size(*one)


def test_a_bare_loop_inside_of_what_a_pullback_left():
    """A loop without a derivative, computed beside one: only what is read of it stays in the branch."""
    c, d, k = (pt.dscalar(name) for name in "cdk")
    bare = While.from_body([c, d], [k], [c + 1, d * k], c < 3)

    def branch() -> Any:
        count, product = bare.bind(s < 3, [s, s], [a])
        return pytensor.gradient.disconnected_grad(count) * s, product

    first, _ = cond(s > 0, branch, lambda: (s, a))
    graph = kept([pytensor.grad(first, s)])
    actual = [
        inner.op
        for node in graph.toposort()
        if isinstance(node.op, Cond)
        for inner in node.op.fgraph.toposort()
        if isinstance(inner.op, Scan)
    ]
    assert actual and {(op.n_states, op.n_consts) for op in actual} == {(1, 0)}


def test_many_lags():
    """Each state is only read by the one before it: one look at the step finds them all."""
    n = 60

    def step(c, r):
        return (*c[1:], c[0] * 0.5 + r), None

    finals, _ = scan(step, tuple(s + k for k in range(n)), x)
    assert ports(kept([finals[-1]])) == [(1, n, 0, 0)]


def test_a_gradient_that_is_asked_for_one_input():
    """A pullback has the cotangents of all inputs: sums over the steps for each constant."""
    final, _ = scan(lambda c, r: (pt.tanh(m @ c + r * v) * a, None), v, x)
    cost = (final**2).sum()
    given, at = [x, s, a, v, m], [X, 0.6, 0.7, np.array([0.3, -0.5]), np.eye(2)]
    both = kept(pytensor.grad(cost, [x, a, v, m]), given, at)
    one = kept([pytensor.grad(cost, x)], given, at)
    states = [
        next(op.n_states for op in (node.op for node in loops(graph)) if "pullback" in str(op))
        for graph in (both, one)
    ]
    assert states == [4, 1]


def test_nothing_to_remove():
    graph = FunctionGraph([x, s, a], [s * a], clone=True)
    remove_unused(graph)
    assert not any(isinstance(node.op, Scan) for node in graph.toposort())
    final, ys = scan(lambda c, r: (c * r, c), s, x)
    graph = FunctionGraph([x, s], [final, ys], clone=True)
    node = graph.outputs[0].owner
    remove_unused(graph)
    assert graph.outputs[0].owner is node
