"""Loops that run backwards, are written out, or are checkpointed: the same values and derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions
from tests.compare import assert_agrees, primitives

XS = np.linspace(-1.0, 1.0, 7)


def weighted(x, s, a, **options):
    """A loop that reads its index, a row, a state and a constant; its final state and its trace."""
    i, row, state, const = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.dscalar()
    new = pt.tanh(const * state + row) + 0.1 * i
    scan = Scan.from_body(
        BodyArgs(i, [row], [state], [const]),
        BodyOuts([new], [new * row]),
        ScanOptions(**options),
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
    *itertools.product([False, True], [1], [None, 1, 2, 7, 9, "sqrt"]),
    *itertools.product([False, True], [3], [None, 2]),
]


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
    found, slopes = jax.value_and_grad(lambda *a: cost(f, *a), (0, 1, 2))(*args)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    for g, e in zip(slopes, expected_slopes, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)
    jaxpr = str(jax.make_jaxpr(f)(*args))
    assert f"reverse={reverse}" in jaxpr and f"unroll={unroll}" in jaxpr
    counts = primitives(jax.make_jaxpr(f)(*args))
    assert counts["remat2" if "remat2" in counts else "checkpoint"] == {
        None: 0,
        2: 2,
        "sqrt": 2,
    }.get(checkpoint, 1)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_loop_that_runs_backwards_is_what_the_ir_says(n):
    inputs, outs = program(reverse=True)
    assert_agrees(inputs, outs, [XS[:n], 0.2, 0.7], vmap=[1, 2])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("truncate", [1, 3, 6, 7])
@pytest.mark.parametrize("checkpoint", [None, 2])
def test_truncated_gradients_go_through_the_last_steps_taken(truncate, reverse, checkpoint):
    inputs, outs = program(reverse=reverse, truncate_gradient=truncate, checkpoint=checkpoint)
    f = jaxify(inputs, outs)
    args = jnp.asarray(XS), 0.2, 0.7
    for read in (lambda outs: outs[0], lambda outs: outs[1].sum()):
        expected = jax.grad(lambda *a: read(by_hand(*a, reverse, truncate)), (0, 1, 2))(*args)  # noqa: B023
        found = jax.grad(lambda *a: read(f(*a)), (0, 1, 2))(*args)  # noqa: B023
        for g, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(f(*args)[1], by_hand(*args, reverse)[1], rtol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
def test_over_a_flipped_sequence_it_runs_the_other_way(reverse):
    x, s, a = pt.dvector("x"), pt.dscalar("s"), pt.dscalar("a")
    last, ys = weighted(x[::-1], s, a, reverse=reverse)
    f = jaxify([x, s, a], [last, ys[::-1]])
    found, trace = f(XS, 0.2, 0.7)
    expected, rows = by_hand(XS[::-1], 0.2, 0.7, reverse)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
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

    assert temporary("sqrt") < temporary(None) / 50
