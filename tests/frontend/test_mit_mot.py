"""Gradients that `pytensor.grad` makes of loops, of any order: MIT-MOT becomes a moving window."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.op import Scan as LegacyScan
from pytensor.scan.op import ScanInfo

from loopax import UnsupportedOpError, jaxify
from tests.support.compare import FAST_COMPILE, assert_agrees, imported, loops, primitives

scan = partial(pytensor.scan, return_updates=False)

X, INIT = pt.dvector("x"), pt.dvector("init")
A, B = pt.dscalar("a"), pt.dscalar("b")
INPUTS = [X, INIT, A, B]
TAPS = [(-1,), (-1, -2), (-1, -3), (-2,), (-1, -12)]  # the last one is a ring


def recurrence(taps):
    """A nonlinear recurrence over ``x`` with weights ``a`` and ``b``: the trace of its state."""
    size = -min(taps)

    def step(x, *args):
        *states, a, b = args
        return pt.tanh(x + sum(a / (k + 1) * s for k, s in enumerate(states))) * b

    initial = INIT[0] if size == 1 else INIT[:size]
    return scan(
        step,
        sequences=[X],
        outputs_info=[{"initial": initial, "taps": list(taps)}],
        non_sequences=[A, B],
    )


def values_for(taps, n=5):
    rng = np.random.default_rng(11)
    return [rng.normal(size=n), rng.normal(size=-min(taps)), 0.7, 1.2]


COSTS = {
    "last": lambda out: out[-1] ** 2,
    "sum": lambda out: (out**2).sum(),
    "both": lambda out: out[-1] * out.sum(),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("taps", "cost"),
    [*((taps, "both") for taps in TAPS), ((-1,), "last"), ((-1,), "sum"), ((-1, -3), "last")],
    ids=str,
)
def test_first_order(taps, cost):
    y = COSTS[cost](recurrence(taps))
    gradients = pytensor.grad(y, INPUTS)
    values = values_for(taps)
    actual = assert_agrees(INPUTS, gradients, values, modes=[FAST_COMPILE], direct=False)
    by_jax = jax.jit(jax.grad(jaxify(INPUTS, y), argnums=(0, 1, 2, 3)))(*map(jnp.asarray, values))
    chex.assert_trees_all_close(actual, list(by_jax), rtol=1e-10, atol=1e-13)


@pytest.mark.slow  # of first order above; of second order in ir/derivatives/test_scan_gradients.py
@pytest.mark.parametrize("taps", [(-1, -3), (-1, -12)], ids=str)
def test_second_order(taps):
    y = COSTS["both"](recurrence(taps))
    values = values_for(taps, 4)
    f = jaxify(INPUTS, y)
    # A Hessian's rows are gradients of the gradient's elements: here of a and of the sum over x.
    d_x, d_a = pytensor.grad(y, [X, A])
    rows = [*pytensor.grad(d_a, INPUTS), *pytensor.grad((d_x * X).sum(), INPUTS)]
    actual = assert_agrees(INPUTS, rows, values, modes=[FAST_COMPILE], direct=False)
    everything = (0, 1, 2, 3)
    of_a = jax.grad(jax.grad(f, argnums=2), argnums=everything)
    of_x = jax.grad(lambda x, *r: jnp.sum(jax.grad(f)(x, *r) * x), argnums=everything)
    arrays = [jnp.asarray(v) for v in values]
    expected = jax.jit(lambda *v: [*of_a(*v), *of_x(*v)])(*arrays)
    chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("taps", [(-1,), (-1, -2)], ids=str)
def test_third_order(taps):
    y = COSTS["last"](recurrence(taps))
    values = values_for(taps, 3)
    f = jaxify(INPUTS, y)
    third = pytensor.grad(pytensor.grad(pytensor.grad(y, A), B), [X, A])
    actual = jax.jit(jaxify(INPUTS, third))(*values)
    expected = jax.grad(jax.grad(jax.grad(f, argnums=2), argnums=3), argnums=(0, 2))
    arrays = [jnp.asarray(v) for v in values]
    chex.assert_trees_all_close(actual, list(jax.jit(expected)(*arrays)), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_hessian_with_respect_to_a_sequence():
    y = COSTS["both"](recurrence((-1, -2)))
    values = values_for((-1, -2), 4)
    hessian = pytensor.gradient.hessian(y, X)
    actual = jax.jit(jaxify(INPUTS, hessian))(*values)
    expected = jax.hessian(jaxify(INPUTS, y))(*map(jnp.asarray, values))
    chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_two_states_that_feed_each_other():
    def step(x, s, t1, t2, a):
        return s * t1 + x, pt.tanh(t2 + a * s)

    s, t = scan(
        step,
        sequences=[X],
        outputs_info=[A, {"initial": INIT, "taps": [-1, -2]}],
        non_sequences=[B],
    )
    y = (s**2).sum() + s[-1] * t.sum()
    values = values_for((-1, -2), 4)
    gradients = pytensor.grad(y, INPUTS)
    second = pytensor.grad(gradients[2], INPUTS)
    outputs = [*gradients, *second]
    actual = assert_agrees(INPUTS, outputs, values, modes=[FAST_COMPILE], direct=False)
    f, arrays = jaxify(INPUTS, y), [jnp.asarray(v) for v in values]
    first = jax.grad(f, argnums=(0, 1, 2, 3))
    total = jax.grad(lambda *v: first(*v)[2], argnums=(0, 1, 2, 3))
    expected = jax.jit(lambda *v: [*first(*v), *total(*v)])(*arrays)
    chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_rows_of_vectors():
    m = pt.dmatrix("m")
    out = scan(
        lambda row, s1, s2, a: pt.tanh(s1 * a + s2[::-1] + row),
        sequences=[m],
        outputs_info=[{"initial": m[:2], "taps": [-1, -2]}],
        non_sequences=[A],
    )
    value = np.random.default_rng(5).normal(size=(4, 3))
    assert_agrees([m, A], out, [value, 0.4], grad_wrt=[m, A], vmap=[0, 1])


@pytest.mark.slow
def test_gradient_through_nested_scans():
    m = pt.dmatrix("m")

    def outer(row, s, a):
        inner = scan(lambda x, t: pt.tanh(t * a + x), sequences=[row], outputs_info=[s])
        return inner[-1]

    y = (scan(outer, sequences=[m], outputs_info=[B], non_sequences=[A]) ** 2).sum()
    inputs, values = [m, A, B], [np.random.default_rng(5).normal(size=(3, 2)), 0.4, 0.1]
    first = pytensor.grad(y, inputs)
    second = pytensor.grad(first[1], [A, B])
    actual = jax.jit(jaxify(inputs, [*first, *second]))(*values)
    f, arrays = jaxify(inputs, y), [jnp.asarray(v) for v in values]
    by_jax = jax.grad(f, argnums=(0, 1, 2))
    total = jax.grad(lambda *v: by_jax(*v)[1], argnums=(1, 2))
    expected = jax.jit(lambda *v: [*by_jax(*v), *total(*v)])(*arrays)
    chex.assert_trees_all_close(actual, expected, rtol=1e-10, atol=1e-12)


def test_gradient_is_two_loops_and_nothing_else():
    gradients = pytensor.grad(COSTS["sum"](recurrence((-1, -2))), INPUTS)
    values = values_for((-1, -2))
    forward, backward = sorted(
        loops(imported(INPUTS, gradients).graph), key=lambda node: node.op.n_states
    )
    assert forward.op.n_states == 2
    assert backward.op.n_ys <= 3  # the sequence's gradient, and the rows that leave the window
    counts = primitives(jax.make_jaxpr(jaxify(INPUTS, gradients))(*values))
    assert counts["scan"] == 2
    assert counts["while"] == 0


# -- MIT-MOT by hand: what `pytensor.grad` makes only at higher order, or never ----------------------


def mit_mot(ins, outs, step, buffer, n_steps):
    """A legacy Scan with one MIT-MOT buffer: ``step(*rows at ins) -> [*rows at outs]``."""
    inner = [pt.dscalar(f"row{tap}") for tap in ins]
    info = ScanInfo(
        n_seqs=0,
        mit_mot_in_slices=(tuple(ins),),
        mit_mot_out_slices=(tuple(outs),),
        mit_sot_in_slices=(),
        sit_sot_in_slices=(),
        n_nit_sot=0,
        n_untraced_sit_sot=0,
        n_non_seqs=0,
        as_while=False,
    )
    op = LegacyScan(inner, list(step(*inner)), info)
    return op(pt.as_tensor(n_steps), buffer)


def by_definition(ins, outs, step, buffer, n_steps):
    buffer = np.array(buffer)
    for t in range(n_steps):
        rows = [buffer[t + tap - min(ins)] for tap in ins]
        for tap, row in zip(outs, step(*rows), strict=True):
            buffer[t + tap - min(ins)] = row
    return buffer


@pytest.mark.sampled(8)
@pytest.mark.parametrize("extra_rows", [0, 2])
@pytest.mark.parametrize(
    ("ins", "outs", "step"),
    [
        ((-1, 0), (0,), lambda a, b: [a + b]),  # PyTensor's JAX mode: [2, 2, 2, 1]
        ((0, 1), (1,), lambda a, b: [a * 2 + b]),
        ((0, 1), (0,), lambda a, b: [a + b]),
        ((0, 1), (0, 1), lambda a, b: [a + b, a - b]),
        ((0, 1, 2), (1, 2), lambda a, b, c: [a + b, a - c]),
        ((-1, -2, 0), (0, -1, -2), lambda a, b, c: [a + b, b * c, c - a]),
        ((0,), (0,), lambda a: [a * 3]),
        ((0, 11), (11,), lambda a, b: [a + 2 * b]),
        ((0, 5, 12), (5, 0), lambda a, b, c: [a + 2 * b, c - a]),
    ],
    ids=lambda v: getattr(v, "__name__", str(v)).strip("<>"),
)
def test_one_common_offset(ins, outs, step, extra_rows):
    n_steps = 3
    n_rows = n_steps + max(*ins, *outs) - min(ins) + extra_rows
    buffer = np.arange(1.0, n_rows + 1) ** 2 if len(ins) > 2 else np.ones(n_rows)
    out = mit_mot(ins, outs, step, X, n_steps)
    expected = by_definition(ins, outs, step, buffer, n_steps)
    actual = assert_agrees([X], out, [buffer], modes=[FAST_COMPILE])
    chex.assert_trees_all_close(np.asarray(actual), expected)


def test_the_running_sum_of_facts():
    out = mit_mot((-1, 0), (0,), lambda a, b: [a + b], X, 3)
    np.testing.assert_array_equal(jaxify([X], out)(np.ones(4)), [1, 2, 3, 4])


def test_taps_outside_of_the_buffer_are_refused():
    out = mit_mot((0, 1), (-1,), lambda a, b: [a + b], X, 3)
    with pytest.raises(UnsupportedOpError, match="MIT-MOT taps .* rows outside of its buffer"):
        jaxify(FunctionGraph([X], [out], clone=True))
