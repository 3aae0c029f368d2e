"""What is the same function of each row leaves the loop: no loop, or one that does less a step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import random_generator_type

import loopax
from loopax import cond, jaxify, scan
from loopax.ir import BodyArgs, BodyOuts, FitRows, Scan, ScanArgs, check, evaluate
from loopax.lowering import order
from loopax.lowering.canonical.stabilize import stabilize
from loopax.lowering.fission.push_out import push_out
from tests.support.compare import FAST_COMPILE, imported, loops, primitives
from tests.support.kept import assert_same, rewritten, values_or_error

x, y, v, w = (pt.dvector(name) for name in "xyvw")
s = pt.dscalar("s")
X, Y, W = (pt.dmatrix(name) for name in "XYW")
T = pt.dtensor3("T")
n = pt.lscalar("n")
GIVEN = [x, y, v, s, X, Y, W, T]
_rng = np.random.default_rng(0)
ROWS = 4
VALUES: list[Any] = [
    _rng.normal(size=shape)
    for shape in [(ROWS,), (ROWS,), (3,), (), (ROWS, 3), (ROWS, 3), (3, 3), (ROWS, 3, 2)]
]
ERRORS = (ValueError, IndexError, np.linalg.LinAlgError)
NO_ROWS = [
    np.zeros((0, *z.shape[1:])) if g in (x, y, X, Y, T) else z
    for g, z in zip(GIVEN, VALUES, strict=True)
]


def pushed(
    outputs: Any, given: Any = GIVEN, at: Any = (VALUES, NO_ROWS), stable: bool = True
) -> FunctionGraph:
    """The graph after the pass, which has the same values, or errors, as before it."""
    outputs = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    graph = FunctionGraph(list(given), outputs, clone=True)
    if stable:
        stabilize(graph)
    return rewritten(graph, push_out, *at, rtol=1e-10, atol=1e-13, errors=ERRORS)


def ops(graph: Any) -> set[type]:
    return {type(node.op) for node in graph.toposort()}


def body_ops(graph: Any) -> list[set[str]]:
    """Of each loop, what its step does."""
    return [{str(a.op) for a in node.op.fgraph.toposort()} for node in loops(graph)]


# -- loops without states ------------------------------------------------------------------------------

MAPS = {
    "row": lambda: loopax.map(lambda r: r, x),
    "elementwise": lambda: loopax.map(lambda r: pt.sin(r) * v + s, X),
    "chosen": lambda: loopax.map(lambda r: pt.switch(r > 0, r, s), x),
    "constant": lambda: loopax.map(lambda r: v * 2, x),
    "vector, matrix": lambda: loopax.map(lambda r: r @ W, X),
    "matrix, vector": lambda: loopax.map(lambda r: W @ r, X),
    "vector, constant": lambda: loopax.map(lambda r: r @ v, X),
    "vectors": lambda: loopax.map(lambda r: r[0] @ r[1], (X, Y)),
    "matrices and vectors": lambda: loopax.map(lambda r: (r[0].T @ r[1], r[1] @ r[0]), (T, X)),
    "matrix, matrices": lambda: loopax.map(lambda r: W @ r, T),
    "matrices": lambda: loopax.map(lambda r: r.T @ r, T),
    "outer": lambda: loopax.map(lambda r: (pt.outer(r[0], r[1]), pt.outer(r[0], v)), (X, Y)),
    "softmax": lambda: loopax.map(pt.special.softmax, X),
    "logsumexp": lambda: loopax.map(pt.logsumexp, X),
    "reduced": lambda: loopax.map(lambda r: (r.max(), r.var(), pt.cumsum(r), r.argmax()), X),
    "reduced, axes": lambda: loopax.map(lambda r: (r.sum(0), r.sum(1), r.T, r[None]), T),
    "stacked": lambda: loopax.map(lambda r: pt.stack([r, s, 2 * r]), x),
    "joined": lambda: loopax.map(lambda r: pt.concatenate([r, v, r[:1]]), X),
    "joined, axis 1": lambda: loopax.map(lambda r: pt.concatenate([r, W], axis=1), T),
    "index": lambda: loopax.map(lambda r: (r[0], r[-1] * r[::-1], r[1:]), X),
    "written": lambda: loopax.map(lambda r: pt.set_subtensor(r[0], r.sum()), X),
    "written to constant": lambda: loopax.map(lambda r: pt.inc_subtensor(W[1:], r), X),
    "gradient": lambda: loopax.map(lambda r: pytensor.grad(r[0] * r[1:].sum(), r), X),
    "shape": lambda: loopax.map(lambda r: r * r.shape[0] + pt.zeros_like(r), X),
    "reshaped": lambda: loopax.map(
        lambda r: (r.flatten(), r.reshape((r.shape[1], r.shape[0])), r.reshape((2, -1))), T
    ),
    "filled": lambda: loopax.map(lambda r: pt.alloc(r, 2, r.shape[0]), X),
    "map of maps": lambda: loopax.map(lambda r: loopax.map(lambda q: pt.sin(q) * s, r), X),
    "lead": lambda: loopax.map(lambda r: (r[1] - r[0]) * s, loopax.lead(x, [0, 1])),
    "reverse": lambda: scan(lambda c, r: ((), pt.exp(r)), (), x, reverse=True)[1],
    "two inputs": lambda: loopax.map(lambda r: r[0] * r[1], (x, y)),
}


@pytest.mark.parametrize("name", MAPS)
def test_no_loop_is_left(name):
    assert not loops(pushed(jax.tree.leaves(MAPS[name](), is_leaf=lambda z: hasattr(z, "owner"))))


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (lambda: loopax.map(lambda r: r @ W, X), {Dot}),
        (lambda: loopax.map(lambda r: pt.sin(r), x), {Elemwise}),
        (lambda: loopax.map(lambda r: W @ r, X), {Dot, DimShuffle}),
        (lambda: loopax.map(lambda r: r.sum(), X), {type(pt.sum(x).owner.op)}),
    ],
)
def test_what_comes_out_is_plain(outputs, expected):
    assert ops(pushed(outputs())) == expected


def test_trailing_shapes_and_steps():
    graph = pushed(loopax.map(lambda r: v, x))
    assert Alloc in ops(graph)
    assert values_or_error(graph, NO_ROWS)[0].shape == (0, 3)


def counting() -> Any:
    """A loop of n steps without sequences, and one with: as ops, which nobody has checked."""
    i, r = pt.lscalar(), pt.dscalar()
    alone = Scan.from_body(BodyArgs(i, [], [], []), BodyOuts([], [i, pt.exp(0.1 * i)]))
    rows = Scan.from_body(
        BodyArgs(i, [r], [], []), BodyOuts([], [pt.sin(r), i * r, pt.constant(2.0)])
    )
    return alone.bind(ScanArgs(n, [], [], [])), rows.bind(ScanArgs(n, [x], [], []))


@pytest.mark.parametrize("which", [0, 1, 2, 3, 4])
def test_a_number_of_steps_that_is_given(which):
    """It may be negative, or another than the sequence has rows; also for who does not read it."""
    alone, rows = counting()
    at = [(VALUES[0], k) for k in (4, 3, 0, -1)]
    graph = pushed([[*alone, *rows][which]], [x, n], at)
    assert not loops(graph)
    assert values_or_error(graph, at[-1]) is ValueError
    assert (values_or_error(graph, at[1]) is ValueError) == (which > 1)


def test_a_sequence_that_is_not_read_still_says_its_length():
    graph = pushed(loopax.map(lambda r: r[0] * 2, (x, v)))
    assert not loops(graph)
    assert values_or_error(graph, VALUES) is ValueError


def test_sequences_of_unequal_length():
    graph = pushed(loopax.map(lambda r: r[0], (x, v)))
    assert values_or_error(graph, VALUES) is ValueError


def test_what_can_leave_does():
    """The trace with a decomposition stays, with what it reads and nothing else."""
    graph = pushed(
        loopax.map(
            lambda r: (pt.exp(r[0]), pt.linalg.cholesky(r[1].T @ r[1] + s * s * pt.eye(2)), r[0]),
            (x, T),
        )
    )
    (node,) = loops(graph)
    assert (node.op.n_seqs, node.op.n_ys) == (1, 1)


@pytest.mark.parametrize(
    "outputs",
    [
        lambda: loopax.map(lambda r: v[r.astype("int64")], x * 0),
        lambda: loopax.map(lambda r: cond(r > 0, lambda: pt.sin(r), lambda: s), x),
        lambda: scan(lambda c, r: (c, pt.exp(r)), (), x, truncate_gradient=2)[1],
        lambda: loopax.map(lambda r: Assert("small")(r, r < 9), x),
        lambda: loopax.map(lambda r: scan(lambda c, q: (c * q, None), s, r)[0], X),
    ],
)
def test_what_has_no_form_for_all_rows_stays(outputs):
    assert loops(pushed(outputs()))


def test_draws_stay():
    rng = random_generator_type("rng")

    def step(state, r):
        state, noise = pt.random.normal(rng=state, return_next_rng=True)
        return state, noise * pt.exp(r)

    graph = FunctionGraph([rng, x], [scan(step, rng, x)[1]], clone=True)
    push_out(graph)
    check(graph)
    (node,) = loops(graph)
    (left,) = body_ops(graph)
    assert node.op.n_states == 1 and len(left) == 2 and "Exp" not in left


def test_memory_is_bounded_as_before():
    """A table of all rows by all points is what the loop was written to avoid."""

    def weight(r):
        return pt.exp(-((r - v) ** 2)).sum()

    assert len(loops(pushed(loopax.map(weight, x)))) == 1
    assert not loops(pushed(loopax.map(weight, X)))
    wide = pt.constant(np.ones(50))
    narrow = pt.specify_shape(X, (None, 3))
    wider = loopax.map(lambda r: pt.exp(r[0] * wide).sum() + r.sum(), narrow)
    assert len(loops(pushed(wider))) == 1


# -- before the states ---------------------------------------------------------------------------------


def test_a_product_is_one_for_all_rows():
    def step(h, r):
        h = pt.tanh(W @ h + W.T @ r)
        return h, h.sum()

    graph = pushed(scan(step, v, X))
    (node,) = loops(graph)
    assert [a.op for a in node.op.fgraph.toposort()].count(Dot()) == 1
    assert node.op.n_seqs == 1 and Dot in ops(graph)


@pytest.mark.parametrize(
    ("step", "xs", "n_seqs", "left"),
    [
        (lambda c, r: (c * pt.sin(r) + 2 * r, c), x, 2, {"Add", "Mul"}),
        (lambda c, r: (c * r.sum(), c), X, 1, {"Mul"}),
        (lambda c, r: (c * pt.exp(-(r**2) * s) ** 2, c), x, 1, {"Mul"}),
        (lambda c, r: (c * pt.sin(r), c), pt.arange(x.shape[0]), 1, {"Mul"}),
        (lambda c, r: (c + loopax.map(lambda q: pt.sin(q) * s, r).sum(), c), X, 1, {"Add"}),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_what_only_rows_feed(step, xs, n_seqs, left, reverse):
    graph = pushed(scan(step, s, xs, reverse=reverse))
    (node,) = loops(graph)
    assert node.op.n_seqs == n_seqs
    assert body_ops(graph) == [left]


@pytest.mark.parametrize(
    "outputs",
    [
        lambda: scan(lambda c, r: (c + 2 * r, c), s, x),  # as cheap as the reading of a row
        lambda: scan(lambda c, r: (c * pt.sin(r), c), s, x, truncate_gradient=2),
        lambda: scan(lambda c, r: (c * pt.sin(r), c, c > 5), s, x),
        lambda: scan(lambda c, r: (c @ pt.exp(r * v) + c, c), v, x),  # a vector for each number
        lambda: scan(lambda c, r: (c * pt.sin(c * r), c), s, x),
    ],
)
def test_what_does_not_pay_or_may_not_leave(outputs):
    outs = [out for out in outputs() if out is not None]
    (before,) = loops(FunctionGraph(GIVEN, outs, clone=True))
    (node,) = loops(pushed(outs))
    assert node.op.n_seqs == before.op.n_seqs


def test_a_loop_without_rows_gets_none_of_a_length_that_is_an_input():
    def summed(steps):
        return loopax.fori_loop(0, steps, lambda i, c: c * s + pt.exp(s * i), 1.0)

    def n_seqs(steps):
        graph = pushed(summed(steps), [*GIVEN, n], [[*VALUES, 3]])
        return [node.op.n_seqs for node in loops(graph)]

    assert n_seqs(n) == [0]  # under jax.jit nobody knows how many
    assert n_seqs(x.shape[0]) == n_seqs(4) == [1]


def test_errors_before_the_states():
    graph = pushed(scan(lambda c, r: (c * pt.sin(r[0]) + pt.cos(r[1]), c), s, (x, v)))
    assert values_or_error(graph, VALUES) is ValueError
    one = pt.tensor(
        "one", dtype="float64", shape=(1,)
    )  # whose length of 1 would be broadcast without a word
    f, _ = scan(lambda c, r: (c * pt.sin(r[0] * r[1]), None), s, (one, x))
    graph = pushed(f, [one, x, s], [([0.5], [0.3], 0.2), ([0.5], [0.3, 0.4], 0.2)])
    with pytest.raises(ValueError):
        evaluate(graph, np.array([0.5]), np.array([0.3, 0.4]), np.asarray(0.2))


# -- lengths that are left open ------------------------------------------------------------------------


def test_the_trace_of_a_loop_that_stops():
    """A function of its rows alone leaves; what could not be checked in JAX does not."""
    _, ys, _ = scan(lambda c, r: (c + r, c * r, c > 0.1), s, x)
    # 3.3 puts n_done in the place of the trace's length, which no DimExpr says is the same.
    alone = pushed(loopax.map(lambda r: pt.sin(r), ys), stable=False)
    assert len(loops(alone)) == 1
    assert not loops(pushed(loopax.map(lambda r: r * 2, x[x > 0]), stable=False))
    both = pushed(loopax.map(lambda r: pt.sin(r[0]) * r[1], (ys, x)))
    assert len(loops(both)) == 2


# -- derivatives that are cut --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [-1, 2])
def test_truncated_derivatives(k):
    """The rows that no step writes stay zero."""
    final = pytensor.scan(
        lambda r, c: pt.tanh(s * c) + pt.sin(r * s),
        sequences=x,
        outputs_info=s**2,
        truncate_gradient=k,
        return_updates=False,
    )
    slope = pytensor.grad(final[-1] ** 2, x)
    mapped = loopax.map(lambda g: pt.sin(g), slope)
    at = [VALUES[0], 0.6]
    expected = pytensor.function([x, s], [slope, mapped], mode=FAST_COMPILE)(*at)
    graph = imported([x, s], [slope, mapped]).graph
    stabilize(graph)
    before = len(loops(graph))
    push_out(graph)
    check(graph)
    assert len(loops(graph)) == before - 1
    assert_same(evaluate(graph, *map(np.asarray, at)), expected, 1e-10, 1e-13)
    assert not expected[1][: ROWS - k].any() or k < 0


@pytest.mark.parametrize("reverse", [False, True])
def test_what_comes_before_the_states_of_a_truncated_loop(reverse):
    """A row of a step that is cut off passes nothing on, whether the step makes it or it comes in."""

    def step(c, r):
        c = pt.tanh(s * c) + pt.sin(r * s)
        return c, r * c

    options = {"reverse": reverse, "truncate_gradient": 2}
    final, ys = scan(step, s**2, x, **options)
    graph = pushed([final, ys], [x, s], [(VALUES[0], 0.6), (VALUES[0][:1], 0.6), ([], 0.6)])
    (inside,) = body_ops(graph)
    assert not any("sin" in op.lower() for op in inside)

    def slopes(given, outputs):
        cost = outputs[0] ** 2 + (outputs[1] ** 2).sum()
        return FunctionGraph(given, pytensor.grad(cost, given), clone=True)

    before, after = slopes([x, s], [final, ys]), slopes([*graph.inputs], graph.outputs)
    for rows in (VALUES[0], VALUES[0][:2], VALUES[0][:1], np.zeros(0)):
        at = rows, np.asarray(0.6)
        assert_same(evaluate(after, *at), evaluate(before, *at), 1e-12, 1e-14)


def test_a_truncated_map_stays():
    ys = loopax.scan(lambda c, r: (c, pt.sin(r * s)), None, x, truncate_gradient=2)[1]
    assert len(loops(pushed(ys, [x, s], [(VALUES[0], 0.6)]))) == 1


def test_rows_that_are_fitted_are_computed_before():
    """``sin`` of a row that is not there would be 0 too, ``cos`` would not."""
    graph = pushed(FitRows()(loopax.map(lambda r: pt.cos(r), x), ROWS + 2))
    assert [type(node.op) for node in graph.toposort()] == [Elemwise, FitRows]
    assert not values_or_error(graph, VALUES)[0][ROWS:].any()


# -- in JAX --------------------------------------------------------------------------------------------


@pytest.fixture
def in_the_passes(monkeypatch):
    if push_out not in order.PASSES:
        monkeypatch.setattr(order, "PASSES", (*order.PASSES, push_out))


@pytest.mark.slow
def test_in_jax(in_the_passes):
    """No loop, and values, gradients and batches as of the function of the rows."""
    ys = loopax.map(lambda r: pt.tanh(r[0] @ W) * r[1].sum(), (X, Y))
    f = jaxify([X, Y, W], ys)
    at = [VALUES[k] for k in (4, 5, 6)]

    def same(X, Y, W):
        return jnp.tanh(X @ W) * Y.sum(1, keepdims=True)

    assert not {"scan", "while"} & {*primitives(jax.make_jaxpr(f)(*at))}
    np.testing.assert_allclose(f(*at), same(*at), rtol=1e-10)
    for actual, expected in zip(
        *(jax.grad(lambda *z, g=g: (g(*z) ** 2).sum(), (0, 1, 2))(*at) for g in (f, same)),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-10)
    batch = np.stack([at[0], 2 * at[0]])
    np.testing.assert_allclose(
        jax.vmap(f, (0, None, None))(batch, *at[1:]),
        jax.vmap(same, (0, None, None))(batch, *at[1:]),
        rtol=1e-10,
    )
    assert f(*NO_ROWS[4:7]).shape == (0, 3)
    with pytest.raises(ValueError, match="does not have one row for each step"):
        f(at[0], at[1][:2], at[2])


def test_before_the_states_in_jax(in_the_passes):
    final, _ = scan(lambda h, r: (pt.tanh(h + r @ W), None), v, X)
    f = jaxify([v, X, W], final)
    at = [VALUES[k] for k in (2, 4, 6)]
    jaxpr = jax.make_jaxpr(f)(*at)
    (inner,) = (e.params["jaxpr"] for e in _equations(jaxpr.jaxpr) if e.primitive.name == "scan")
    assert "dot_general" not in primitives(inner) and "dot_general" in primitives(jaxpr)

    def same(v, X, W):
        return jax.lax.scan(lambda h, r: (jnp.tanh(h + r @ W), None), v, X)[0]

    for actual, expected in zip(
        *(jax.grad(lambda *z, g=g: (g(*z) ** 2).sum(), (0, 1, 2))(*at) for g in (f, same)),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-10)


def _equations(jaxpr: Any) -> Any:
    for e in jaxpr.eqns:
        yield e
        for inner in jax.tree.leaves(e.params, is_leaf=lambda z: hasattr(z, "eqns")):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from _equations(getattr(inner, "jaxpr", inner))


def test_numbers_come_in_as_one_row_where_fewer_come_in_then():
    """Of a sum those terms first that follow from the rows; a row that takes the place of none stays."""
    x, s, a, b, c = pt.dvector("x"), *pt.dscalars("s", "a", "b", "c")
    at = [np.linspace(0.0, 1.0, 4), 0.3, 0.5, 0.2, 0.7]

    def ports(step):
        outs = scan(step, s, x)
        graph = rewritten(
            FunctionGraph([x, s, a, b, c], list(outs), clone=True), push_out, at, rtol=1e-13
        )
        (node,) = loops(graph)
        return node.op.n_seqs, node.op.n_consts

    assert ports(lambda v, r: ((new := a + b * r**2 + c * v), new)) == (1, 1)
    assert ports(lambda v, r: ((new := pt.mul(a, r, pt.tanh(v), b)), new)) == (1, 0)
    assert ports(lambda v, r: ((new := (r + 1) * v + r), new)) == (1, 0)  # two rows for one
