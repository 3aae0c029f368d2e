"""Loops over the same steps become one where none needs what is only known behind the other."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import cond, scan
from loopax.ir import BodyArgs, BodyOuts, Cond, Scan, ScanArgs, evaluate
from loopax.ir.ops.calling_convention import INDEX_TYPE, ScanOptions
from loopax.ir.ops.checked import Checked
from loopax.lowering import lower
from loopax.lowering.fusion.fuse_loops import fuse_loops
from loopax.lowering.redundancy.remove_unused import remove_unused
from tests.lowering.nets_of_loops import INPUTS, net
from tests.lowering.nets_of_loops import values as values_of
from tests.support.compare import imported, loops
from tests.support.kept import rewritten

x, y, s, a, n = pt.dvector("x"), pt.dmatrix("y"), pt.dscalar("s"), pt.dscalar("a"), pt.lscalar("n")
one = pt.TensorType("float64", (1,))("one")
AT = {
    x: np.array([0.4, -0.9, 0.7]),
    y: np.array([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]]),
    s: np.asarray(0.6),
    a: np.asarray(0.7),
    n: np.asarray(3),
    one: np.array([0.9]),
}


def fused(*outputs: Any, **changed: Any) -> FunctionGraph:
    """The graph after the pass, which has the same values, dtypes and shapes, also for no steps."""
    at = {**AT, **{v: np.asarray(changed.get(v.name, z)) for v, z in AT.items()}}
    empty = {**at, x: at[x][:0], y: at[y][:0], n: np.asarray(0)}
    graph = FunctionGraph([*at], list(outputs), clone=True)
    return rewritten(graph, fuse_loops, [*at.values()], [*empty.values()], rtol=1e-12)


def left(*outputs: Any, **changed: Any) -> int:
    return len(loops(fused(*outputs, **changed)))


def first(**options: Any) -> Any:
    return scan(lambda c, r: (pt.tanh(c + r), c * r), s, x, **options)


def second(xs: Any, init: Any = a, **options: Any) -> Any:
    return scan(lambda c, r: (c * 0.5 + r, pt.sin(c)), init, xs, **options)


# -- two loops ---------------------------------------------------------------------------------------


def test_independent_loops():
    f, ys = first()
    g, zs = second(x)
    graph = fused(f, ys, g, zs)
    (node,) = loops(graph)
    assert (node.op.n_seqs, node.op.n_states, node.op.n_ys) == (1, 2, 2)


def test_a_loop_over_the_trace_of_another():
    f, ys = first()
    g, zs = second(ys)
    graph = fused(f, g, zs)
    remove_unused(graph)
    (node,) = loops(graph)
    assert (node.op.n_seqs, node.op.n_states, node.op.n_ys) == (1, 2, 1)


@pytest.mark.parametrize(
    "between",
    [
        lambda ys: 2 * ys * x + a,
        lambda ys: ys * one,
        lambda ys: pt.stack([ys, x], axis=1).sum(axis=1),
        lambda ys: (ys[:, None] * y).sum(axis=1, dtype="float64", acc_dtype="float64"),
        lambda ys: (ys[:, None] * y).max(axis=-1),
        lambda ys: (ys[:, None].dimshuffle(0, "x", 1) * y[:, None, :]).sum(axis=(1, 2)),
        lambda ys: (ys * 3).astype("int64").astype("float64"),
        lambda ys: pt.switch(ys > 0, ys, x),
    ],
)
def test_what_stands_between_them(between):
    _, ys = first()
    rows = between(ys)
    g, zs = second(rows)
    assert left(g, zs, rows) <= 1 + ("Join" in str(rows.owner.inputs[0].owner))


@pytest.mark.parametrize(
    "between",
    [
        lambda ys: ys[::-1],
        lambda ys: ys + ys.sum(),
        lambda ys: pt.cumsum(ys),
        lambda ys: pt.concatenate([ys[1:], ys[:1]]),
        lambda ys: ys * pt.specify_shape(ys[:1], 1),
        lambda ys: x + ys.shape[0] * ys.sum(),
    ],
)
def test_what_is_only_known_behind_the_first(between):
    _, ys = first()
    g, zs = second(between(ys))
    graph = FunctionGraph([*AT], [g, zs], clone=True)  # not all of them can take no rows
    rewritten(graph, fuse_loops, [*AT.values()], rtol=1e-12)
    assert len(loops(graph)) == 2


def test_an_initial_state_or_a_constant_from_the_other():
    f, ys = first()
    g, _ = second(x, init=f)
    assert left(g) == 2
    g, _ = scan(lambda c, r: (c * f + r, None), a, x)
    assert left(g, ys) == 2


def test_other_directions():
    f, ys = first()
    g, _ = second(ys, reverse=True)
    assert left(f, g) == 2
    f, ys = first(reverse=True)
    g, zs = second(ys, reverse=True)
    assert left(f, g, zs) == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_maps_join_a_loop_of_either_direction(reverse):
    _, rows = scan(lambda c, r: (c, pt.exp(r)), (), x)
    f, ys = first(reverse=reverse)
    _, more = scan(lambda c, r: (c, r[0] * r[1]), (), (rows, ys))
    assert left(f, ys, rows, more) == 1


def test_a_map_that_loops_of_both_directions_read():
    _, rows = scan(lambda c, r: (c, pt.exp(r)), (), x)
    f, _ = second(rows)
    g, _ = second(rows, reverse=True)
    assert left(f, g, rows) == 2


def test_sums_go_with_either_direction():
    """The number of loops stays two: the sum needs the trace of the first, and goes with the second."""
    f, ys = first()
    back, zs = second(ys, reverse=True)
    total, _ = scan(
        lambda c, r: (c + r[0] * r[1], None), pt.constant(0.0, dtype="float64"), (ys, zs)
    )
    assert left(f, back, total) == 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64"])
def test_sums_of_any_dtype(dtype):
    _, ys = first(reverse=True)
    start = pt.constant(1, dtype=dtype)
    total, _ = scan(lambda c, r: (c + (r * 90).astype(dtype), None), start, ys)
    assert left(total) == 1  # forwards as it was written, backwards with the first
    product, _ = scan(lambda c, r: (c * 3 + (r * 90).astype(dtype), None), start, ys)
    assert left(product) == 2


# -- more loops --------------------------------------------------------------------------------------


def test_one_that_lies_between():
    """The first and the third could be one, but the second needs the first and the third needs it."""
    f, ys = first()
    back, zs = second(ys[::-1])
    g, _ = second(ys * zs)
    assert left(f, back, g) == 2
    h, _ = scan(lambda c, r: (c * r + back, None), a, ys)
    assert left(f, back, h) == 3


def test_cycles_among_clusters():
    """Each of the two pairs could be one loop, both of them could not."""
    f, ys = first()
    b, zs = second(x, reverse=True)
    _, after = scan(lambda c, r: (c * r + f, c), a, x, reverse=True)  # would need all of the first
    g, _ = scan(lambda c, r: (c * r + b, None), a, ys)  # would need all of the second
    left(f, b, after, g, zs)


def test_rows_of_no_loop_come_before_their_readers():
    """Otherwise their reader would bring back a loop that reads it in turn: a cycle, without end."""
    rows = pt.TensorType("float64", (3,))("rows")
    path = scan(lambda c, r: (pt.tanh(a * c) + r, c), s, rows)[1]
    sums = scan(lambda c, r: (0.5 * c + r * path[-1], c), a, path)[1]
    back = scan(lambda c, r: (0.7 * c + r, c), a, sums, reverse=True)[1]

    def step(carry: Any, row: Any) -> Any:
        (u, w), (r, z, t) = carry, row
        return (0.3 * u + r * path[-1], pt.sin(w) + z), pt.tanh(u) * t

    shifted = pt.concatenate([sums[1:], sums[:1]])
    (u, w), products = scan(step, (a, 2 * a), (path, back, shifted))
    again = scan(lambda c, r: (0.9 * c + r, c), a, products, reverse=True)[1]
    final, _ = scan(lambda c, r: (0.2 * c + r, None), a, again)
    graph = FunctionGraph([rows, s, a], [final + w + u], clone=True)
    at = [np.array([0.4, -0.9, 0.7]), np.float64(0.6), np.float64(0.7)]
    assert len(loops(rewritten(graph, fuse_loops, at, rtol=1e-12))) == 5


def test_rows_that_two_loops_take():
    f, ys = first()
    b, zs = second(x, reverse=True)
    rows = ys * zs
    g, gs = second(rows)
    h, hs = second(rows * 2, reverse=True)
    left(f, b, g, h, gs, hs, rows)


def test_what_a_loop_does_not_read_still_comes_before_it():
    """The second has the first's trace for a sequence of which no row is read."""
    row, state, i = pt.dscalar(), pt.dscalar(), INDEX_TYPE()
    ignores = Scan.from_body(
        BodyArgs(i, [row], [state], []), BodyOuts([state * 2], [state]), ScanOptions(unroll=2)
    )
    _, rows = scan(lambda c, r: (c, r + 1), (), x)
    n_steps = x.shape[0]
    final, trace = ignores.bind(ScanArgs(n_steps, [rows], [s], []))
    (b, q), _ = scan(lambda c, r: ((c[0] * r + final, c[1] + r), None), (a, s), rows, reverse=True)
    left(final, trace, b, q)


def test_the_number_of_steps_that_comes_from_a_loop():
    count, _ = scan(lambda c, r: (c + 1, None), pt.constant(0, dtype="int64"), x)
    _, ys = first(reverse=True)
    row, i = pt.dscalar(), INDEX_TYPE()
    double = Scan.from_body(BodyArgs(i, [row], [], []), BodyOuts([], [row * 2]))
    (rows,) = double.bind(ScanArgs(count, [ys], [], []))
    g, _ = scan(
        lambda c, r: (c * r + rows.sum(), c), s, x
    )  # of the steps of the first, but behind it
    assert left(count, g) == 4


# -- what makes loops different ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"unroll": 2}, {"checkpoint": 2}, {"checkpoint": "sqrt"}, {"reverse": True}]
)
def test_other_options(options):
    f, _ = first()
    g, _ = second(x, **options)
    assert left(f, g) == 2
    h, _ = first(**options)
    assert left(h, g) == 1


def bound(step: Any, stop: Any = None, n_steps: Any = None, **options: Any) -> Any:
    row, state, i = pt.dscalar(), pt.dscalar(), INDEX_TYPE()
    new, out = step(state, row)
    loop = Scan.from_body(
        BodyArgs(i, [row], [state], []),
        BodyOuts([new], [out], None if stop is None else stop(new)),
        ScanOptions(**options),
    )
    return loop.bind(ScanArgs(x.shape[0] if n_steps is None else n_steps, [x], [s], []))


def test_truncated_gradients_and_loops_that_stop():
    def step(c, r):
        return c * r, c

    f, _ = first()
    assert left(f, bound(step, truncate_gradient=2)[0]) == 2
    assert left(f, bound(step, stop=lambda c: c > 0.5)[0]) == 2
    both = bound(step, stop=lambda c: c > 0.5), bound(step, stop=lambda c: c > 0.1)
    assert left(both[0][0], both[1][0]) == 2


def test_numbers_of_steps_that_are_equal_in_some_runs():
    f, _ = first()
    g, _ = scan(lambda c, _: (c * a, None), s, length=n)
    assert left(f, g) == 2
    h, _ = scan(lambda c, _: (c * 0.3, None), s, length=n + 1 - 1)
    assert left(h, g) == 1


def raised(graph: Any, at: Any) -> Any:
    try:
        evaluate(graph, *at)
    except Exception as error:  # whichever it is
        return type(error), str(error)[:7]
    return None


@pytest.mark.parametrize(("rows", "steps"), [(0, -1), (0, 0), (3, 2), (1, 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_errors_of_numbers_of_steps(rows, steps, turned):
    """A loop that takes its number of steps from another one would not raise its own error."""

    state, i = pt.dscalar(), INDEX_TYPE()
    plain = Scan.from_body(BodyArgs(i, [], [state], []), BodyOuts([state * 0.5], [state]))
    less = plain.bind(ScanArgs(x.shape[0] - 1, [], [s], []))
    cut = x[1:]
    same = plain.bind(ScanArgs(cut.shape[0], [], [a], []))
    checked = Checked(RuntimeError, "no")(n, pt.eq(x.shape[0], n)) + 1
    asks = plain.bind(ScanArgs(checked - 1, [], [s], []))
    other = plain.bind(ScanArgs(n, [], [a], []))
    for pair in ((less, same), (asks, other)):
        outs = [p[0] for p in (pair[::-1] if turned else pair)]
        graph = FunctionGraph([x, n, s, a], outs, clone=True)
        at = [np.ones(rows), np.asarray(steps), np.asarray(0.5), np.asarray(0.2)]
        expected = raised(graph, at)
        fuse_loops(graph)
        assert raised(graph, at) == expected


def test_an_echoed_input_is_not_a_carry():
    """PyTensor's issue 2252: one returns its row, the other one what it carries."""
    f, ys = scan(lambda c, r: (r, c), s, x)
    g, zs = scan(lambda c, r: (c, r), s, x)
    h, ws = scan(lambda c, r: (c + r, (c, r)), s, ys)
    assert left(f, ys, g, zs, h, *ws) == 1


def test_states_that_are_the_next_of_others():
    def step(c, r):
        p, q, t = c
        return (q, t, p * r), (p, q)

    finals, ys = scan(step, (s, a, s * a), x)
    others, zs = scan(step, finals[:0] + (s, s, a), ys[0])
    assert left(*finals, *ys, *others, *zs) == 1


# -- values of other kinds ---------------------------------------------------------------------------


def test_generators():
    rng = random_generator_type("rng")

    def step(c, r):
        state, z = c
        state, noise = pt.random.normal(rng=state, return_next_rng=True)
        return (state, z + noise), (state, noise * r)

    (state, z), (states, ys) = scan(step, (rng, s), x)
    _, more = scan(
        lambda c, r: (c, pt.random.normal(rng=r, return_next_rng=True)[1] + 1), (), states
    )
    (_, w), _ = scan(step, (rng, a), ys)
    graph = FunctionGraph([rng, x, s, a], [state, z, more, w, ys], clone=True)
    rewritten(graph, fuse_loops, [np.random.default_rng(3), np.ones(3), 0.2, 0.7], rtol=1e-12)
    assert len(loops(graph)) == 1


def test_bodies():
    def two(c, r):
        p, ps = scan(lambda e, w: (e * w, e), c, x)
        q, _ = scan(lambda e, w: (e + w, None), r, ps)
        return p + q

    f, _ = scan(lambda c, r: (two(c, r), None), s, x)
    assert left(f) == 2
    graph = fused(cond(s > 0, lambda: two(s, a), lambda: s))
    (node,) = (k for k in graph.toposort() if isinstance(k.op, Cond))
    assert len(loops(node.op.fgraph)) == 1


# -- derivatives -------------------------------------------------------------------------------------

c = pt.dscalar("c")


def in_loopax(step: Any, traced: bool = False, **steps: Any) -> Any:
    def both(p, r):
        new = step(p, r)
        return new, new

    final, ys = scan(both, s, **steps)
    return (ys**2).sum() if traced else final


def in_pytensor(step: Any, **given: Any) -> Any:
    actual = pytensor.scan(step, outputs_info=[s], return_updates=False, **given)
    return actual[-1]


DERIVATIVES = {
    "square": (lambda: in_loopax(lambda p, _: p**2, length=4), s, 4),
    "square, by pytensor.scan": (lambda: in_pytensor(lambda p: p**2, n_steps=4), s, 4),
    "tanh": (lambda: in_loopax(lambda p, r: pt.tanh(c * p + r), xs=x), s, 4),
    "tanh of a constant": (lambda: in_loopax(lambda p, r: pt.tanh(c * p + r), xs=x), c, 3),
    "squares": (lambda: in_loopax(lambda p, r: pt.tanh(c * p + r), True, xs=x), s, 3),
    "squares of a constant": (lambda: in_loopax(lambda p, r: pt.tanh(c * p + r), True, xs=x), c, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DERIVATIVES)
def test_two_loops_whatever_the_order(name):
    """One goes forward and one back."""
    make, wrt, orders = DERIVATIVES[name]
    cost = make()
    at = {x: AT[x], s: AT[s], c: np.asarray(0.8)}
    for order in range(1, orders + 1):
        cost = pytensor.grad(cost, wrt)
        given = [v for v in at if v in set(pytensor.graph.traversal.graph_inputs([cost]))]
        graph = imported(given, cost).graph
        values = [at[v] for v in given]
        expected = evaluate(graph, *values) if order < 3 else None  # of so many loops it takes long
        lower(graph)
        assert len(loops(graph)) == 2
        if expected is not None:
            np.testing.assert_allclose(evaluate(graph, *values), expected, rtol=1e-9)


# -- programs ----------------------------------------------------------------------------------------


@pytest.mark.sampled(9)
@pytest.mark.parametrize("number", range(12))
def test_nets_of_loops(number):
    graph = FunctionGraph(INPUTS, net(number, 4), clone=True)
    before = len(loops(graph))
    cases = [values_of(rows, number) for rows in (0, 1, 3)]
    rewritten(graph, fuse_loops, *cases, rtol=1e-9, atol=1e-12)
    assert len(loops(graph)) <= before


def test_nothing_to_fuse():
    f, _ = first()
    graph = FunctionGraph([x, s], [f], clone=True)
    node = graph.outputs[0].owner
    fuse_loops(graph)
    assert graph.outputs[0].owner is node
