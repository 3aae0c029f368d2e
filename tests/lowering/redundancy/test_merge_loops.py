"""Twins become one loop: the same values from fewer loops, and nothing else is taken for a twin."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.type import random_generator_type

from loopax import cond, scan
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, check
from loopax.lowering.redundancy.merge_loops import merge_loops
from tests.support.assorted_loops import CASES, X, a, s, x
from tests.support.compare import loops
from tests.support.kept import rewritten

VALUES = [X, np.asarray(0.6), np.asarray(0.7)]


def merged(outputs: Any, given: Any = (x, s, a), at: Any = VALUES) -> list[Any]:
    """The loops that are left, with the same values before and after the pass."""
    graph = FunctionGraph(list(given), list(outputs), clone=True)
    return loops(rewritten(graph, merge_loops, at))


def shape_of(node: Any) -> tuple[int, ...]:
    op = node.op
    return op.n_seqs, op.n_states, op.n_consts, op.n_ys


# -- what is merged ----------------------------------------------------------------------------------


def test_one_loop_with_the_traces_of_both():
    first, ys = scan(lambda c, r: (pt.sin(c) * a + r, c), s, x)
    second, zs = scan(lambda c, r: (pt.sin(c) * a + r, (c**2, a * r)), s, x)
    (node,) = merged([first, ys, second, *zs])
    assert shape_of(node) == (1, 1, 1, 3)


def test_equal_loops_are_one():
    pairs = [scan(lambda c, r: (pt.sin(c) * a + r, c), s, x) for _ in range(3)]
    (node,) = merged([out for pair in pairs for out in pair])
    assert shape_of(node) == (1, 1, 1, 1)


def test_names_do_not_matter():
    first, _ = scan(lambda c, r: (c * r, None), s, x, name="one")
    _, ys = scan(lambda c, r: (c * r, c), s, x, name="other")
    (node,) = merged([first, ys])
    assert node.op.options.name in ("one", "other")


def test_equal_inputs_are_found():
    """The number of steps of each loop is computed anew from the shape of its sequence."""
    _, ys = scan(lambda c, r: (c * r, c), pt.exp(s), x * 2)
    _, zs = scan(lambda c, r: (c * r, c + 1), pt.exp(s), x * 2)
    assert len(merged([ys, zs])) == 1


def test_twins_of_what_twins_made():
    _, ys = scan(lambda c, r: (c * r, c), s, x)
    _, zs = scan(lambda c, r: (c * r, c + 1), s, x)
    more = [
        scan(lambda c, r, emit=emit: (c + r, emit(c)), a, y)[1]
        for y, emit in ((ys, pt.sin), (ys, pt.cos), (zs, pt.sin))
    ]
    assert sorted(map(shape_of, merged(more))) == [(1, 1, 0, 1), (1, 1, 0, 2), (1, 1, 0, 2)]


def test_twins_that_stop():
    def step(emit):
        return lambda c, r: (c + r, emit(c), c > 0.5)

    first, ys, stopped = scan(step(pt.sin), s, x)
    second, zs, also = scan(step(pt.cos), s, x)
    n_done = [v.owner.outputs[-2] for v in (first, second)]
    (node,) = merged([first, ys, stopped, second, zs, also, *n_done])
    assert shape_of(node) == (1, 1, 0, 2)


def test_in_bodies_too():
    def step(c, r):
        one, _ = scan(lambda d, _: (d * r, None), r, length=3)
        _, two = scan(lambda d, _: (d * r, d), r, length=3)
        return c + one, two.sum()

    final, ys = scan(step, s, x)
    outer, inner = merged([final, ys])
    assert shape_of(inner) == (0, 1, 1, 1)
    chosen = cond(s > 0, lambda: scan(step, s, x)[0] * a, lambda: s)
    graph = FunctionGraph([x, s, a], [chosen], clone=True)
    merge_loops(graph)
    check(graph)
    (branch,) = (node.op.fgraph for node in graph.toposort() if hasattr(node.op, "branches"))
    assert len(loops(branch)) == 2


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("recurrence", [2, 5, 12]),
        pytest.param("coupled", [2, 5, 13], marks=pytest.mark.slow),
        pytest.param("feeding", [2, 5, 12], marks=pytest.mark.slow),
    ],
)
def test_derivatives_have_fewer_loops(name, counts):
    case = CASES[name]()
    derivative, actual = case.cost, []
    for _ in counts:
        derivative = pytensor.grad(derivative.sum(), case.inputs[-1])
        actual.append(len(merged([derivative], case.inputs, case.values)))
    assert actual == counts


# -- what is left alone ------------------------------------------------------------------------------


def apart(first: Any, second: Any) -> None:
    assert len(merged([*first, *second])) == 2


def test_loops_that_stop_for_different_reasons():
    """PyTensor issue 510."""
    one, ys, _ = scan(lambda c, r: (c + r, c, c > 0.5), s, x)
    other, zs, _ = scan(lambda c, r: (c + r, c, c > 0.9), s, x)
    apart([one, ys], [other, zs])
    plain, zs = scan(lambda c, r: (c + r, c), s, x)
    apart([one, ys], [plain, zs])


def test_an_echoed_input_is_no_state():
    """PyTensor issue 2252: a row or a constant that is emitted as it is."""
    one, ys = scan(lambda c, r: (c * a, r), s, x)
    other, zs = scan(lambda c, r: (r * a, c), s, x)
    apart([one, ys], [other, zs])
    i, row, c, k = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.dscalar()
    keeps_const = Scan.from_body(BodyArgs(i, [row], [c], [k]), BodyOuts([k], [c]))
    keeps_row = Scan.from_body(BodyArgs(i, [row], [c], [k]), BodyOuts([row], [c]))
    keeps_state = Scan.from_body(BodyArgs(i, [row], [c], [k]), BodyOuts([c], [c]))
    given = ScanArgs(x.shape[0], [x], [s], [a])
    outs = [op.bind(given) for op in (keeps_const, keeps_row, keeps_state)]
    assert len(merged([v for out in outs for v in out])) == 3


@pytest.mark.parametrize(
    "options",
    [{"reverse": True}, {"unroll": 2}, {"checkpoint": 2}, {"truncate_gradient": 2}],
    ids=str,
)
def test_other_options(options):
    apart(scan(lambda c, r: (c * r, c), s, x), scan(lambda c, r: (c * r, c), s, x, **options))


@pytest.mark.parametrize(
    "other",
    [
        lambda: scan(lambda c, r: (c * r, c), a, x),
        lambda: scan(lambda c, r: (c * r, c), s, x * 2),
        lambda: scan(lambda c, r: (c * r, c), s, x[1:]),
        lambda: scan(lambda c, r: (c * r + 0 * a, c), s, x),
        lambda: scan(lambda c, r: ((c[0] * r, c[0]), c[0]), (s, s), x),
    ],
    ids=["state", "sequence", "number of steps", "constant", "states"],
)
def test_other_inputs_or_steps(other):
    one, ys = scan(lambda c, r: (c * r, c), s, x)
    final, zs = other()
    apart([one, ys], [*(final if isinstance(final, tuple) else [final]), zs])


def test_draws_of_different_generators():
    rngs = [random_generator_type(name) for name in ("one", "other")]

    def draw(rng, emit):
        def step(state, _):
            following, z = pt.random.normal(rng=state, return_next_rng=True)
            return following, emit(z)

        return scan(step, rng, length=3)[1]

    outs = [draw(rngs[0], pt.sin), draw(rngs[0], pt.cos), draw(rngs[1], pt.sin)]
    graph = FunctionGraph(rngs, outs, clone=True)
    merge_loops(graph)
    check(graph)
    assert sorted(map(shape_of, loops(graph))) == [(0, 1, 0, 1), (0, 1, 0, 2)]


def test_one_loop_is_not_looked_at():
    final, _ = scan(lambda c, r: (c * r, None), s, x)
    graph = FunctionGraph([x, s], [final], clone=True)
    before = graph.outputs[0].owner
    merge_loops(graph)
    assert graph.outputs[0].owner is before
