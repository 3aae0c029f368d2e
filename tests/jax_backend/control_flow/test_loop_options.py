"""Loops that run backwards, are written out, or are checkpointed: the same values and derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.typed_list import getitem, make_list

from loopax import jaxify, scan
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, TraceType, evaluate
from tests.support.compare import assert_agrees, primitives

XS = np.linspace(-1.0, 1.0, 7)


def weighted(x, s, a, **options):
    """A loop that reads its index, a row, a state and a constant; its final state and its trace."""
    i, row, state, const = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.dscalar()
    new = pt.tanh(const * state + row) + 0.1 * i
    scan = Scan.from_body(
        BodyArgs(i, [row], [state], [const]), BodyOuts([new], [new * row]), ScanOptions(**options)
    )
    return scan.bind(ScanArgs(x.shape[0], [x], [s], [a]))


def by_hand(x, s, a, reverse=False, truncate=-1):
    """The same in JAX, one step after the other."""
    n, ys = len(x), [None] * len(x)
    order = range(n - 1, -1, -1) if reverse else range(n)
    for taken, k in enumerate(order):
        row, const = x[k], a
        if truncate > 0 and n - taken > truncate:
            s, row, const = map(jax.lax.stop_gradient, (s, row, const))
        s = jnp.tanh(const * s + row) + 0.1 * k
        ys[k] = s * row
        if truncate > 0 and n - taken >= truncate + 1:
            s, ys[k] = jax.lax.stop_gradient(s), jax.lax.stop_gradient(ys[k])
    return s, jnp.stack(ys) if ys else jnp.zeros(0)


def program(**options):
    x, s, a = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a")
    return [x, s, a], weighted(x, s, a, **options)


CASES = [
    *itertools.product([False, True], [1], [None, 1, 2, 7, 9, "sqrt", (4, 2), (6, 3, 1)]),
    *itertools.product([False, True], [3], [None, 2]),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("reverse", "unroll", "checkpoint"), CASES)
def test_values_and_gradients(reverse, unroll, checkpoint):
    inputs, outs = program(reverse=reverse, unroll=unroll, checkpoint=checkpoint)
    f = jaxify(inputs, outs)

    def cost(f, *args):
        final, ys = f(*args)
        return final + jnp.sum(ys**2)

    args = jnp.asarray(XS), 0.2, 0.7
    hand = functools.partial(by_hand, reverse=reverse)
    expected, expected_slopes = jax.value_and_grad(lambda *a: cost(hand, *a), (0, 1, 2))(*args)
    actual, slopes = jax.value_and_grad(lambda *a: cost(f, *a), (0, 1, 2))(*args)
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
    for g, e in zip(slopes, expected_slopes, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)
    jaxpr = str(jax.make_jaxpr(f)(*args))
    assert f"reverse={reverse}" in jaxpr and f"unroll={unroll}" in jaxpr
    counts = primitives(jax.make_jaxpr(f)(*args))
    # No block is as long as 9 steps; the root of 7, like 2, leaves a step that nothing is kept for.
    checkpoints = counts["remat2" if "remat2" in counts else "checkpoint"]
    if isinstance(checkpoint, tuple):  # a loop over blocks in a block of each level but the last
        assert checkpoints >= len(checkpoint)
    else:
        assert checkpoints == (0 if checkpoint in (None, 9) else 1)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_loop_that_runs_backwards_is_what_the_ir_says(n):
    inputs, outs = program(reverse=True)
    assert_agrees(inputs, outs, [XS[:n], 0.2, 0.7], vmap=[1, 2])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "truncate", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 7))]
)
@pytest.mark.parametrize("checkpoint", [None, 2])
def test_truncated_gradients_go_through_the_last_steps_taken(truncate, reverse, checkpoint):
    inputs, outs = program(reverse=reverse, truncate_gradient=truncate, checkpoint=checkpoint)
    f = jaxify(inputs, outs)
    args = jnp.asarray(XS), 0.2, 0.7
    for read in (lambda outs: outs[0], lambda outs: outs[1].sum()):
        expected = jax.grad(lambda *a: read(by_hand(*a, reverse, truncate)), (0, 1, 2))(*args)  # noqa: B023
        actual = jax.grad(lambda *a: read(f(*a)), (0, 1, 2))(*args)  # noqa: B023
        for g, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(f(*args)[1], by_hand(*args, reverse)[1], rtol=1e-13)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("truncate", [0, 2, 9])
@pytest.mark.parametrize("limit", [1.7, 9.0])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_that_stops_is_cut_as_the_ir_says(truncate, limit, reverse):
    """Of the steps that were taken, the last ones; a limit of 9 is never reached."""
    i, row, state, const = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.dscalar()
    new = pt.tanh(const * state) + row
    scan = Scan.from_body(
        BodyArgs(i, [row], [state], [const]),
        BodyOuts([new], [new * row], new > limit),
        ScanOptions(truncate_gradient=truncate, reverse=reverse),
    )
    inputs = [pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a")]
    x, s, a = inputs
    final, trace, n_done, stopped = scan.bind(ScanArgs(x.shape[0], [x], [s], [a]))
    slopes = pytensor.grad(final + trace.sum(), inputs, disconnected_inputs="ignore")
    values = np.linspace(0.1, 1.0, 6), np.asarray(0.3), np.asarray(0.8)
    outs = [final + trace.sum(), n_done, stopped, *slopes]
    graph = FunctionGraph(inputs, outs, clone=True)
    cost, done, flag, *expected = evaluate(graph, *values)
    f = jaxify(inputs, outs[:3])
    for actual, wanted in zip(f(*values), (cost, done, flag), strict=True):
        np.testing.assert_allclose(actual, wanted)
    for actual, wanted in zip(
        jax.grad(lambda *v: f(*v)[0], (0, 1, 2))(*values), expected, strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("checkpoint", [2, "sqrt"])
def test_rows_that_are_lists_are_checkpointed_at_each_step(checkpoint):
    i, rows, s = pt.lscalar(), TraceType(pt.dscalar().type)(), pt.dscalar()
    scan = Scan.from_body(
        BodyArgs(i, [rows], [s], []),
        BodyOuts([pt.tanh(s + getitem(rows, 0))], []),
        ScanOptions(checkpoint=checkpoint),
    )
    s0 = pt.dscalar("s0")
    one = make_list([s0, s0 * 2])
    out = scan.bind(ScanArgs(3, [make_list([one, one, one])], [s0], []))[0]
    f = jaxify([s0], out)
    counts = primitives(jax.make_jaxpr(f)(0.3))
    assert counts["remat2" if "remat2" in counts else "checkpoint"] == 1
    assert_agrees([s0], out, [0.3])


@pytest.mark.parametrize("reverse", [False, True])
def test_over_a_flipped_sequence_it_runs_the_other_way(reverse):
    x, s, a = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a")
    last, ys = weighted(x[::-1], s, a, reverse=reverse)
    f = jaxify([x, s, a], [last, ys[::-1]])
    actual, trace = f(XS, 0.2, 0.7)
    expected, rows = by_hand(XS[::-1], 0.2, 0.7, reverse)
    np.testing.assert_allclose(actual, expected, rtol=1e-13)
    np.testing.assert_allclose(trace, rows[::-1], rtol=1e-13)
    assert f"reverse={not reverse}" in str(jax.make_jaxpr(f)(XS, 0.2, 0.7))


def test_a_short_loop_with_shapes_that_change_is_written_out_backwards():
    i, s, c = pt.lscalar(), pt.dscalar(), pt.dvector()
    new = 0.5 * s + c[:i].sum()
    scan = Scan.from_body(
        BodyArgs(i, [], [s], [c]), BodyOuts([new], [new]), ScanOptions(reverse=True)
    )
    x = pt.dvector("x")
    outs = scan.bind(ScanArgs(4, [], [pt.zeros(())], [x]))
    assert_agrees([x], outs, [XS])
    assert "scan" not in primitives(jax.make_jaxpr(jaxify([x], outs))(XS))


def test_a_traced_number_of_steps_backwards():
    i, s = pt.lscalar(), pt.dscalar()
    scan = Scan.from_body(
        BodyArgs(i, [], [s], []), BodyOuts([0.5 * s + i], []), ScanOptions(reverse=True)
    )
    n, s0 = pt.lscalar("n"), pt.dscalar("s0")
    outs = scan.bind(ScanArgs(n, [], [s0], []))
    for steps in (0, 3):
        assert_agrees([n, s0], outs, [steps, 1.5])
    assert primitives(jax.make_jaxpr(jax.jit(jaxify([n, s0], outs)))(3, 1.5))["while"] == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_checkpoints_need_less_memory(reverse):
    """At 40,000 steps already a hundredth of what the plain gradient keeps."""
    inputs, outs = program(reverse=reverse)

    def temporary(checkpoint):
        i, s, a = pt.lscalar(), pt.dscalar(), pt.dscalar()
        options = ScanOptions(checkpoint=checkpoint, reverse=reverse)
        scan = Scan.from_body(BodyArgs(i, [], [s], [a]), BodyOuts([pt.tanh(a * s)], []), options)
        s0, a0 = pt.dscalar("s0"), pt.dscalar("a0")
        f = jaxify([s0, a0], scan.bind(ScanArgs(40_000, [], [s0], [a0]))[0])
        compiled = jax.jit(jax.grad(f, (0, 1))).lower(0.5, 0.9).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    by_root = temporary("sqrt")
    assert by_root < temporary(None) / 50
    assert temporary((1600, 40)) < by_root / 2  # 25 + 40 + 40 states instead of 200 + 200


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 2])
def test_rows_of_unknown_length_are_checkpointed(checkpoint):
    """They are traces of a loop that stops: their number is known, their length is not."""
    x = pt.dvector("x")

    def until_positive(s):
        return scan(lambda c, _: (c + 1, c, c > 0), s, None, length=4)[1]

    rows = scan(lambda c, r: (c, until_positive(r)), pt.zeros(()), x)[1]
    total = scan(lambda c, r: (pt.tanh(c + r).sum(), None), 0.0, rows, checkpoint=checkpoint)[0]
    f = jaxify([x], total, loops="xla")
    expected = 0.0
    for _ in range(3):
        expected = np.tanh(expected + np.array([-1.5, -0.5, 0.5])).sum()
    np.testing.assert_allclose(jax.jit(f)(np.full(3, -1.5)), expected)
