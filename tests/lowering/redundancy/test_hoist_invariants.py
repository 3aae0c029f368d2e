"""What does not depend on the iteration leaves the loop, and takes no error with it that was not."""

from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import Assert
from pytensor.tensor.random.type import random_generator_type

from loopax import cond, jaxify, while_loop
from loopax.ir import BodyArgs, BodyOuts, Cond, Scan, ScanArgs, ScanOptions, evaluate
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.lowering.redundancy.hoist_invariants import hoist_invariants
from tests.support.compare import loops
from tests.support.kept import rewritten

n = pt.lscalar("n")
x, v = pt.dvector("x"), pt.dvector("v")
s, a = pt.dscalar("s"), pt.dscalar("a")
m = pt.dmatrix("m")
M = np.array([[2.0, 0.5], [0.1, 1.5]])
V = np.array([0.3, -0.5])
X = np.array([0.4, -0.9, 0.7])


def of_step(step: Any, init: Any, xs: Any, consts: Any, n_steps: Any = None, **options: Any) -> Any:
    """The outputs of a Scan whose step computes all inside: `scan` captures what it can outside."""
    stops = options.pop("stops", False)
    i, row, state = INDEX_TYPE("i"), pt.TensorType(xs.type.dtype, xs.type.shape[1:])(), init.type()
    inner = [c.type() for c in consts]
    nexts, ys, *stop = step(state, row, *inner)
    op = Scan.from_body(
        BodyArgs(i, [row], [state], inner),
        BodyOuts([state.type.filter_variable(nexts)], ys, *stop),
        ScanOptions(**options),
    )
    assert op.stops == stops
    return op.bind(ScanArgs(xs.shape[0] if n_steps is None else n_steps, [xs], [init], consts))


def hoisted(outputs: Any, given: Any, at: Any) -> FunctionGraph:
    """The graph after the pass, with the same values before and after it."""
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    return rewritten(graph, hoist_invariants, at, rtol=1e-12, atol=1e-14)


def ops(graph: Any) -> list[str]:
    """What the body of the one loop computes."""
    (node,) = loops(graph)
    return [str(getattr(p.op, "scalar_op", p.op)) for p in node.op.fgraph.toposort()]


def conds(graph: Any) -> list[Any]:
    return [node for node in graph.toposort() if isinstance(node.op, Cond)]


def by_inverse(**options: Any) -> Any:
    return of_step(
        lambda c, r, m: (pt.linalg.inv(m) @ c * r, [c + r, pt.linalg.inv(m) @ c]),
        v,
        x,
        [m],
        **options,
    )


def is_stuck(outputs: Any, given: Any, at: Any) -> None:
    """Nothing leaves: the node is the one it was."""
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    before = graph.toposort()
    hoist_invariants(graph)
    assert graph.toposort() == before
    evaluate(graph, *[z if hasattr(z, "bit_generator") else np.asarray(z) for z in at])


# -- cheap -------------------------------------------------------------------------------------------


def test_what_cannot_raise_just_moves():
    outs = of_step(
        lambda c, r, a, s: (c * pt.exp(pt.sin(a) * 2) + r, [pt.tanh(a) * s]), s, x, [a, a]
    )
    for rows in (X, X[:0]):
        graph = hoisted(outs, [x, s, a], [rows, 0.6, 0.7])
        assert ops(graph) == ["mul", "add"] and not conds(graph)
        (node,) = loops(graph)
        assert node.op.n_consts == 2  # what they were made of is gone


def test_a_constant_that_is_still_read_stays():
    outs = of_step(lambda c, r, a: (c * pt.sin(a) + a * r, []), s, x, [a])
    (node,) = loops(hoisted(outs, [x, s, a], [X, 0.6, 0.7]))
    assert node.op.n_consts == 2


def test_reverse_and_shapes():
    outs = of_step(
        lambda c, r, m: (c * m.shape[0] + r, [c * m.shape[1].astype("float64")]),
        s,
        x,
        [m],
        reverse=True,
    )
    graph = hoisted(outs, [x, s, m], [X, 0.6, M])
    assert not any("Shape" in op for op in ops(graph))


@pytest.mark.parametrize(
    "step",
    [
        lambda c, r, v: (c * r, [pt.alloc(v[0] * 0 + r, 3), pt.alloc(v, 3, v.shape[0])]),
        lambda c, r, v: (c * r, [v[:, None] * v[None, :]]),
        lambda c, r, v: (c * r, [v[None, :]]),
    ],
    ids=["alloc", "outer", "view"],
)
def test_what_is_larger_or_costs_nothing_stays(step):
    outs = of_step(step, s, x, [v])
    graph = hoisted(outs, [x, s, v], [X, 0.6, V])
    assert any(op in " ".join(ops(graph)) for op in ("Alloc", "mul", "ExpandDims", "DimShuffle"))
    (node,) = loops(graph)
    assert all(c.type.ndim < 2 for c in node.op.args.consts)


def test_an_outer_product_that_more_is_made_of_moves():
    outs = of_step(lambda c, r, v: (c * r, [pt.exp(v[:, None] - v[None, :]) * r]), s, x, [v])
    graph = hoisted(outs, [x, s, v], [X, 0.6, V])
    assert not any(op in ("exp", "sub") for op in ops(graph))


# -- under a guard -----------------------------------------------------------------------------------


def test_an_inverse_moves_under_a_guard():
    graph = hoisted(by_inverse(), [x, v, m], [X, V, M])
    assert not any("Inverse" in op for op in ops(graph))
    (cond,) = conds(graph)
    assert len(cond.outputs) == 1
    singular = np.zeros((2, 2))
    evaluate(graph, X[:0], V, singular)  # no step, no error
    with pytest.raises(np.linalg.LinAlgError):
        evaluate(graph, X[:1], V, singular)


def test_no_guard_where_there_is_a_step():
    xs = pt.concatenate([x, pt.zeros(1)])
    outs = of_step(lambda c, r, m: (pt.linalg.inv(m) @ c * r, []), v, xs, [m])
    graph = hoisted(outs, [x, v, m], [X, V, M])
    assert not conds(graph) and not any("Inverse" in op for op in ops(graph))


def test_the_trailing_shape_of_no_steps():
    outs = of_step(
        lambda c, r, m, v: (c * r, [pt.linalg.inv(m), m @ v * 2, pt.linalg.inv(m).T @ v]),
        s,
        x,
        [m, v],
    )
    for rows in (X, X[:0]):
        graph = hoisted(outs, [x, s, m, v], [rows, 0.6, M, V])
        assert len(conds(graph)) == 1
        assert ops(graph) == ["Squeeze{axis=1}", "mul"]  # a view costs nothing


def test_unequal_shapes_raise_as_before():
    outs = of_step(lambda c, r, v, w: (c * r + (v * w).sum(), []), s, x, [v, v])
    w = pt.dvector("w")
    (node,) = loops(FunctionGraph([x, s, v], outs, clone=True))
    outs = node.op.make_node(x.shape[0], x, s, v, w).outputs
    graph = hoisted(outs, [x, s, v, w], [X, 0.6, V, 2 * V])
    assert len(conds(graph)) == 1 and ops(graph) == ["mul", "add"]
    evaluate(graph, X[:0], np.array(0.6), V, X)
    with pytest.raises(ValueError):
        evaluate(graph, X[:1], np.array(0.6), V, X)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (lambda c, r, v, k: (c * r + v[k], []), IndexError),
        (lambda c, r, v, k: (c * r * Assert("k is 1")(v[0], pt.eq(k, 1)), []), AssertionError),
    ],
    ids=["index", "assert"],
)
def test_an_error_is_raised_where_there_is_a_step(step, error):
    k, at = pt.lscalar("k"), [np.array(0.6), V]
    outs = of_step(step, s, x, [v, k])
    graph = hoisted(outs, [x, s, v, k], [X, 0.6, V, 1])
    assert len(conds(graph)) == 1
    evaluate(graph, X[:0], *at, np.asarray(7))
    with pytest.raises(error):
        evaluate(graph, X[:1], *at, np.asarray(7))


def test_a_loop_that_stops():
    outs = of_step(
        lambda c, r, m: (pt.linalg.inv(m) @ c, [c * r], c.sum() > 5), v, x, [m], stops=True
    )
    graph = hoisted(outs, [x, v, m], [X, V, M])
    assert len(conds(graph)) == 1 and not any("Inverse" in op for op in ops(graph))


def test_integers_stay_where_a_guard_would_hide_them():
    """A shape is made of one: JAX must know it, also where it does not know the number of steps."""
    k = pt.lvector("k")
    is_stuck(
        of_step(lambda c, r, k: (c + (pt.ones(k[0]) * r).sum(), []), s, x, [k])[:1],
        [x, s, k],
        [X, 0.6, [2, 3]],
    )


# -- what stays --------------------------------------------------------------------------------------


def test_what_stays():
    cut = by_inverse(truncate_gradient=2)
    is_stuck(cut, [x, v, m], [X, V, M])
    rng = random_generator_type("rng")
    drawn = of_step(
        lambda c, r, g: (c + pt.random.normal(rng=g, return_next_rng=True)[1] * r, []), s, x, [rng]
    )
    is_stuck(drawn, [x, s, rng], [X, 0.6, np.random.default_rng(1)])
    clipped = of_step(
        lambda c, r, a: (c + pytensor.gradient.grad_clip(a, -1, 1) * r, []), s, x, [a]
    )
    is_stuck(clipped, [x, s, a], [X, 0.6, 0.7])
    unknown = of_step(lambda c, r, v: (c * r + v[v > 0].sum(), [v[v > 0]]), s, x, [v])
    graph = hoisted(unknown, [x, s, v], [X, 0.6, V])
    assert any("Subtensor" in op for op in ops(graph))  # it is emitted, and of unknown length


def test_a_branch_is_never_left():
    outs = of_step(
        lambda c, r, m: (cond(c > 100, lambda: pt.linalg.inv(m).sum(), lambda: c * r), []),
        s,
        x,
        [m],
    )
    graph = hoisted(outs, [x, s, m], [X, 0.6, np.zeros((2, 2))])
    (node,) = loops(graph)
    assert any(isinstance(p.op, Cond) for p in node.op.fgraph.toposort())


def test_a_trace_of_unknown_length_stays():
    def step(c, r, a):
        return c * r + a, [
            of_step(lambda c, r, a: (c + r, [c], c > a), a, pt.ones(4), [a * 3], stops=True)[
                1
            ].sum()
        ]

    xs = pt.concatenate([x, pt.zeros(1)])
    graph = hoisted(of_step(step, s, xs, [a]), [x, s, a], [X, 0.6, 0.7])
    outer, inner = loops(graph)
    assert inner.op.stops


# -- loops in loops ----------------------------------------------------------------------------------


def nested(rows: Any) -> Any:
    def step(c, r, m, v):
        final, _ = of_step(
            lambda d, w, m, v: (d + pt.linalg.inv(m) @ v * w, [d]), c, rows, [m, v], name="inner"
        )
        return final * r, [final]

    return of_step(step, v, x, [m, v])


@pytest.mark.parametrize("rows", [pt.ones(3), pt.zeros(0)])
def test_out_of_both_loops(rows):
    for xs in (X, X[:0]):
        graph = hoisted(nested(rows), [x, v, m], [xs, V, M])
        for node in loops(graph):
            assert not any("Inverse" in str(p.op) for p in node.op.fgraph.toposort())
            assert not any(isinstance(p.op, Cond) for p in node.op.fgraph.toposort())
    singular = np.zeros((2, 2))
    evaluate(graph, X[:0], V, singular)
    if rows.type.shape[0] == 0 or not rows.eval().size:
        evaluate(graph, X, V, singular)
    else:
        with pytest.raises(np.linalg.LinAlgError):
            evaluate(graph, X, V, singular)


def test_a_whole_loop():
    def step(c, r, m, v):
        final, _ = of_step(lambda d, w, m: (m @ d + w, [d]), v, pt.ones(3), [m])
        return c * r + final, []

    graph = hoisted(of_step(step, v, x, [m, v]), [x, v, m], [X, V, M])
    (outer,) = (node for node in graph.toposort() if isinstance(node.op, Scan))
    assert not any(isinstance(p.op, Scan) for p in outer.op.fgraph.toposort())


# -- in JAX ------------------------------------------------------------------------------------------


def in_jax(outputs: Any, given: Any, at: Any, wrt: int) -> list[Any]:
    """Values and gradient, of the graph as it is and behind the pass."""
    actual = []
    for run in (lambda graph: None, hoist_invariants):
        graph = FunctionGraph(list(given), list(outputs), clone=True)
        run(graph)
        f = jaxify(graph)

        def cost(*xs, f=f):
            outs = f(*xs)
            return sum((out**2).sum() for out in outs), outs

        actual.append(jax.jit(jax.grad(cost, argnums=wrt, has_aux=True))(*at))
    return actual


def test_in_jax_with_steps_that_are_known():
    before, behind = in_jax(by_inverse(), [x, v, m], [X, V, M], 2)
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-12), before, behind)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("static", [{}, {"static_argnums": 0}])
@pytest.mark.parametrize("steps", [0, 3])
def test_in_jax_with_steps_that_are_given(static, steps):
    i, state, inner = INDEX_TYPE("i"), v.type(), m.type()
    op = Scan.from_body(
        BodyArgs(i, [], [state], [inner]), BodyOuts([pt.linalg.inv(inner) @ state + i], [])
    )
    outs = op.bind(ScanArgs(n, [], [v], [m]))
    hoisted(outs, [n, v, m], [steps, V, M])
    given = [n, v, m]
    actual = []
    for run in (lambda graph: None, hoist_invariants):
        graph = FunctionGraph(given, outs, clone=True)
        run(graph)
        f = jaxify(graph)
        actual.append(jax.jit(lambda *xs, f=f: f(*xs), **static)(steps, V, M))
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-12), *actual)
    assert not static or "cond" not in str(jax.make_jaxpr(f, static_argnums=0)(steps, V, M))


# -- programs ----------------------------------------------------------------------------------------


def test_gradients_of_pytensor():
    outs = by_inverse()
    cost = (outs[0] ** 2).sum() + outs[1].sum()
    graph = hoisted(pytensor.grad(cost, [m, v, x]), [x, v, m], [X, V, M])
    for node in loops(graph):
        assert not any("Inverse" in str(p.op) for p in node.op.fgraph.toposort())


def test_a_while_loop_keeps_its_condition():
    actual = while_loop(lambda c: c < 100 * pt.exp(a), lambda c: c * 2 + pt.sin(a), s, max_steps=20)
    hoisted([actual], [s, a], [0.6, 0.7])
