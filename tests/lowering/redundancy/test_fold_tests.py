"""Tests of integers that their intervals decide."""

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph

from loopax import native, scan
from loopax.facts.elementwise import scalar_op_of
from loopax.ir import Scan
from loopax.lowering.redundancy.fold_tests import fold_tests
from tests.support.compare import imported
from tests.support.kept import rewritten

x = pt.dvector("x")
k, small = pt.lscalar("k"), pt.bscalar("small")
mask = pt.vector("mask", dtype="bool")
INPUTS = [x, k, small, mask]
CASES = [
    [np.linspace(-1, 1, 5), np.int64(value), np.int8(narrow), np.array([True, False])]
    for value, narrow in [(3, 100), (-2, -128), (2**62, 127), (-(2**63), 0)]
]
M = pt.mod(k, 5)  # 0 to 4


def folded(*outputs):
    return rewritten(FunctionGraph(INPUTS, list(outputs), clone=True), fold_tests, *CASES)


def ops_in(graph):
    return {type(scalar_op_of(node.op)) for node in graph.apply_nodes}


@pytest.mark.parametrize(
    ("output", "gone"),
    [
        (pt.lt(M, 5), ps.LT),
        (pt.lt(M, 0), ps.LT),
        (pt.ge(M, 0) & pt.le(M, 4), ps.AND),
        (pt.eq(M, 7) | pt.neq(M, 7), ps.OR),
        (pt.switch(M < 0, M + 5, M), ps.Switch),
        (pt.switch(M >= 0, pt.sqrt(x[0] ** 2), x[0]), ps.Switch),
        (pt.clip(M, 0, 4), ps.Clip),
        (pt.minimum(M, 9), ps.ScalarMinimum),
        (pt.maximum(-1, M), ps.ScalarMaximum),
        (M.astype("int8").astype("int64"), ps.Cast),
        (pt.invert(pt.gt(M, 4)), ps.Invert),
        (pt.neq(mask, np.bool_(0)), ps.NEQ),
        (pt.eq(1, mask), ps.EQ),
    ],
    ids=lambda v: getattr(v, "__name__", "of"),
)
def test_what_the_range_of_a_remainder_decides(output, gone):
    assert gone not in ops_in(folded(output))


@pytest.mark.parametrize(
    "output",
    [
        pt.lt(M, 4),
        pt.eq(M, 0),
        pt.lt(k + 1, k),  # true where it wraps around
        pt.ge(pt.abs(k), 0),  # false of the least integer
        pt.lt(small + small, 300),  # bytes wrap around, too
        pt.clip(M, 1, 4),
        pt.switch(k, M, -M),
        pt.minimum(M, 3),
        pt.ge(x[0], 0) & pt.le(x[0], 4),
        pt.switch(mask, 1, 2),
        pt.eq(mask, np.bool_(0)),
        pt.neq(mask, np.bool_(1)),
        pt.neq(mask, k),
    ],
)
def test_what_nothing_decides_stays(output):
    before = ops_in(FunctionGraph(INPUTS, [output], clone=True))
    assert ops_in(folded(output)) == before


def test_the_index_of_a_step_is_in_its_range():
    def step(total, j):
        position = pt.switch(j < 0, j + 6, j)
        return total + x[pt.clip(position, 0, 5) % 5] * (position < 6), None

    total, _ = scan(step, init=0.0, xs=pt.constant(np.arange(6)))
    graph = imported([x], [total]).graph
    rewritten(graph, fold_tests, [np.linspace(-1, 1, 5)])
    (body,) = [node.op.fgraph for node in graph.apply_nodes if hasattr(node.op, "n_seqs")]
    assert not ops_in(body) & {ps.LT, ps.Clip, ps.Switch}


@pytest.mark.slow
def test_a_fori_loop_of_jax_reads_and_writes_at_its_index():
    """No clamp, no negative index, and no copy of the row that is written."""
    import jax
    import jax.numpy as jnp

    def filled(p, x):
        def step(i, carry):
            total, y = carry
            value = p * jnp.where(i > 0, y[i - 1], 0.0) + x[i]
            return total + value**2, y.at[i].set(value)

        return jax.lax.fori_loop(0, 30, step, (0.0, jnp.zeros(30)))

    values = jnp.linspace(-1.0, 1.0, 30)
    fast = native(filled, loops="native")
    for f, g in [
        (filled, fast),
        (
            jax.grad(lambda p, x: filled(p, x)[0], (0, 1)),
            jax.grad(lambda p, x: fast(p, x)[0], (0, 1)),
        ),
    ]:
        for a, b in zip(
            jax.tree.leaves(f(0.4, values)), jax.tree.leaves(g(0.4, values)), strict=True
        ):
            np.testing.assert_allclose(b, a, rtol=1e-12)


y = pt.tensor("y", shape=(4,), dtype="float64")


def test_places_of_an_order_that_another_loop_reads():
    """An order is a trace of one loop and counted from the end or not in the next: it never is."""

    def first(s, row):
        order = pt.argsort(y * row)
        return s + row, order

    def second(s, order):
        place = pt.switch(order < 0, order + 4, order)
        return s + y[pt.clip(place, 0, 3)], None

    orders = scan(first, 0.0, x)[1]
    total = scan(second, pt.zeros(4), orders, reverse=True)[0]
    graph = FunctionGraph([y, x], [total], clone=True)
    cases = [np.array([2.0, 1.0, 3.0, 0.0]), np.linspace(-1, 1, 5)]
    rewritten(graph, fold_tests, cases, [cases[0], cases[1][:0]])
    bodies = [node.op.fgraph for node in graph.toposort() if isinstance(node.op, Scan)]
    assert not ops_in(bodies[1]) & {ps.Switch, ps.Clip, ps.LT}


def test_a_trace_of_a_loop_that_stops_is_not_known():
    def first(s, row):
        return s + row, pt.argsort(y * row), s > 1.0

    orders = scan(first, 0.0, x)[1]
    total = scan(lambda s, order: (s + pt.clip(order, 0, 3).sum(), None), 0, orders)[0]
    graph = FunctionGraph([y, x], [total], clone=True)
    rewritten(graph, fold_tests)
    bodies = [node.op.fgraph for node in graph.toposort() if isinstance(node.op, Scan)]
    assert ps.Clip in ops_in(bodies[1])


POINTERS = pt.constant(np.array([[1, 2, 0], [2, 2, 1], [0, 1, 2]]))


def followed(step, start):
    """The final state and the states before the steps of a loop over `POINTERS`, which a step reads."""

    def counted(s, pointers):
        return step(s, pointers), s

    final, path = scan(counted, start, POINTERS)
    graph = FunctionGraph([k], [final, path], clone=True)
    rewritten(graph, fold_tests, [np.int64(1)], [np.int64(-1)], [np.int64(2)])
    (loop,) = [node for node in graph.toposort() if isinstance(node.op, Scan)]
    return ops_in(loop.op.fgraph)


def test_a_state_that_stays_in_the_interval_it_starts_in():
    def step(s, pointers):
        return pointers[pt.clip(pt.switch(s < 0, s + 3, s), 0, 2)]

    assert not followed(step, pt.mod(k, 3)) & {ps.Switch, ps.Clip, ps.LT}


def test_a_state_that_one_step_leads_to_an_interval():
    def step(s, pointers):
        return pointers[pt.clip(pt.switch(s < 0, s + 3, s), 0, 2)]

    assert not followed(step, pt.constant(0)) & {ps.Switch, ps.Clip, ps.LT}


@pytest.mark.parametrize(
    ("step", "start"),
    [
        (lambda s, pointers: pt.switch(s < 2, s + pointers[0], s - 5), pt.constant(0)),
        (lambda s, pointers: pt.switch(s < 2, s + 1, s + 2), pt.constant(0)),  # grows
        (lambda s, pointers: pt.switch(s < 2, pointers[0], s), k),  # starts anywhere
        (lambda s, pointers: pt.switch(s < 2, -2 * s, pointers[s % 3]), pt.constant(1)),
    ],
)
def test_a_state_that_goes_anywhere(step, start):
    assert ps.Switch in followed(step, start)


def test_a_final_state_is_known():
    def step(s, pointers):
        return pointers[pt.clip(s, 0, 2)], None

    final = scan(step, pt.mod(k, 3), POINTERS)[0]
    graph = FunctionGraph([k], [pt.clip(final, 0, 2)], clone=True)
    rewritten(graph, fold_tests, [np.int64(1)], [np.int64(-1)])
    assert ps.Clip not in ops_in(graph)


@pytest.mark.parametrize(
    "output",
    [
        pt.switch(pt.clip(pt.clip(k, 8, 9), 2, 5) >= 7, 1, 2),
        pt.switch(~(k % 2) < 0, 1, 2),
        pt.lt(~((k % 2).astype("uint8")), 2),
        pt.clip(k, 2, 5).astype("bool").astype("int64"),
        pt.gt(pt.minimum(small, np.int8(10)) * np.int8(3), 30),
        pt.switch(pt.minimum(small, np.int8(10)) - np.int8(100) < 0, 1, 2),
    ],
)
def test_tests_of_operations_that_leave_an_interval(output):
    """The values stay: of a clip outside of its bounds, of inverted bits, of flags and wrapped bytes."""
    cases = [
        [np.linspace(-1, 1, 5), np.int64(value), np.int8(narrow), np.array([True, False])]
        for value in (3, 8, -1, 0)
        for narrow in (-43, -100, -128, 127, 0)
    ]
    rewritten(FunctionGraph(INPUTS, [output], clone=True), fold_tests, *CASES, *cases)


def test_a_state_that_starts_outside_of_its_bounds():
    def step(s, row):
        return pt.clip(s + 1, 2, 5), s * 2 + pt.switch(s > 5, 100, 0)

    final, trace = scan(step, pt.constant(7), x)
    rewritten(FunctionGraph(INPUTS, [final, trace], clone=True), fold_tests, *CASES)
    final, trace = scan(lambda s, row: (~s, pt.switch(s < 0, s + 7, s)), pt.constant(0), x)
    rewritten(FunctionGraph(INPUTS, [final, trace], clone=True), fold_tests, *CASES)
