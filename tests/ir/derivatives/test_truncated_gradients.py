"""``truncate_gradient``: the gradients that `pytensor.scan` gives, of the loop's last steps only."""

import functools

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import pushforward
from pytensor.scan.utils import until

from loopax import fori_loop, grad, jaxify, lag, scan
from loopax.frontend.programs.program_transforms import transformed
from loopax.ir import evaluate
from tests.support.assorted_loops import PLAIN, X, a, s, slopes, x
from tests.support.marking import slow_where


def step(c, r):
    new = pt.tanh(a * c + r)
    return new, (new * r * a, new)


def ours(k, reverse, **options):
    """The final state, a trace that is no state, and the states, in the order of the rows."""
    final, (ys, states) = scan(step, s, x, truncate_gradient=k, reverse=reverse, **options)
    return final, ys, states


def legacy(k, reverse):
    states, ys = pytensor.scan(
        lambda r, c, a: [pt.tanh(a * c + r), pt.tanh(a * c + r) * r * a],
        sequences=[x],
        outputs_info=[s, None],
        non_sequences=[a],
        go_backwards=reverse,
        truncate_gradient=k,
        return_updates=False,
    )
    in_order = slice(None, None, -1 if reverse else 1)
    return states[-1], ys[in_order], states[in_order]


def costs(loop):
    final, ys, states = loop
    weights = 1.0 + pt.arange(ys.shape[0])
    return [final**2, (ys * weights).sum(), (states * weights).sum()]


@functools.cache
def gradients(build, k, reverse, **options):
    outs = [
        g for cost in costs(build(k, reverse, **options)) for g in pytensor.grad(cost, [x, s, a])
    ]
    return pytensor.function([x, s, a], outs, mode=PLAIN)


CASES = [(k, reverse) for reverse in (False, True) for k in (1, 3, 4, 6)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("k", "reverse"), CASES)
def test_as_pytensor_scan(k, reverse):
    for n in (1, 3, 4):
        actual = gradients(ours, k, reverse)(X[:n], 0.6, 0.7)
        expected = gradients(legacy, k, reverse)(X[:n], 0.6, 0.7)
        for f, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("k", "reverse"), [(1, False), (3, True)])
def test_no_steps(k, reverse):
    actual = gradients(ours, k, reverse)(X[:0], 0.6, 0.7)
    for g, e in zip(actual, [np.zeros(0), 1.2, *[0.0] * 7], strict=True):
        np.testing.assert_array_equal(g, np.zeros(0) if g.ndim else e)


@pytest.mark.parametrize("reverse", [False, True])
def test_what_is_cut_off(reverse):
    """The rows of the first steps and the initial state have no gradient, the constants the last ones'."""
    by_x, by_s, by_a = gradients(ours, 2, reverse)(X, 0.6, 0.7)[:3]
    assert np.flatnonzero(by_x).tolist() == ([0, 1] if reverse else [2, 3])
    assert by_s == 0
    last = X[:2] if reverse else X[2:]
    before = pytensor.function([x, s, a], ours(2, reverse)[2], mode=PLAIN)(X, 0.6, 0.7)
    start = before[2 if reverse else 1]
    full = gradients(ours, -1, reverse)(last, start, 0.7)
    np.testing.assert_allclose(by_x[by_x != 0], full[0], rtol=1e-12)
    np.testing.assert_allclose(by_a, full[2], rtol=1e-12)


@pytest.mark.parametrize("checkpoint", slow_where(lambda k: k == "sqrt", [2, "sqrt"]))
def test_with_checkpoints(checkpoint):
    actual = gradients(ours, 3, True, checkpoint=checkpoint)(X, 0.6, 0.7)
    for f, e in zip(actual, gradients(ours, 3, True)(X, 0.6, 0.7), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_with_checkpoints_and_rows_of_unknown_length(n):
    """A loop of no more steps than have a derivative is not divided: its rows have one length in JAX."""

    def outer(c, r):
        rows = pytensor.scan(
            lambda y: (y / 2, until(y < 1)), outputs_info=[r], n_steps=9, return_updates=False
        )
        return c + rows[-1], rows

    _, rows = scan(outer, s, x, truncate_gradient=3, checkpoint="sqrt")
    actual = jaxify([s, x], rows, loops="xla")(0.5, np.full(n, 3.0))
    np.testing.assert_array_equal(actual, [[1.5, 0.75, 0.375]] * n)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_that_stops_has_its_last_steps_where_it_stops(reverse):
    # The gradient of pytensor.scan's `until` reads rows that were never reached: it is no reference.
    def until(c, r):
        new = c + r**2 + a
        return new, (new * r, new), new > 2.5

    final, ys, _ = scan(until, s, x, truncate_gradient=2, reverse=reverse)
    same, zs = scan(lambda c, r: until(c, r)[:2], s, x, truncate_gradient=2, reverse=reverse)
    stopping = [final**2, (ys[0] * ys[1]).sum()]
    plain = [same**2, (zs[0] * zs[1]).sum()]
    f, g = (
        pytensor.function(
            [x, s, a], [d for c in each for d in pytensor.grad(c, [x, s, a])], mode=PLAIN
        )
        for each in (stopping, plain)
    )
    for start, n in ((0.6, 3), (-9.0, 4), (2.4, 1)):
        taken = X[4 - n :] if reverse else X[:n]
        padding = (4 - n, 0) if reverse else (0, 4 - n)
        for d, e in zip(f(X, start, 0.3), g(taken, start, 0.3), strict=True):
            np.testing.assert_allclose(d, np.pad(e, padding) if e.ndim else e, rtol=1e-12)


def test_forward_mode_and_higher_orders_are_those_of_the_same_steps():
    outs = costs(ours(2, False))
    f = jaxify([x, s, a], outs[0])
    first = pytensor.grad(outs[0], [x, s, a])
    second = pytensor.grad(sum(g.sum() for g in first), [x, s, a])
    at = (X, 0.6, 0.7)
    by_jax = jax.grad(lambda *args: sum(g.sum() for g in jax.grad(f, (0, 1, 2))(*args)), (0, 1, 2))(
        *at
    )
    actual = pytensor.function([x, s, a], second, mode=PLAIN, on_unused_input="ignore")(*at)
    for g, e in zip(actual, by_jax, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)
    for own in (False, True):
        along = pushforward(outs, [x, a], [pt.ones_like(x), pt.ones(())], use_op_pushforward=own)
        actual = pytensor.function([x, s, a], along, mode=PLAIN)(*at)
        by_grad = gradients(ours, 2, False)(*at)
        expected = [by_grad[k].sum() + by_grad[k + 2] for k in (0, 3, 6)]
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_the_other_loops_take_it_too():
    final = fori_loop(0, 5, lambda i, c: pt.sin(a * c) + s, 0.3, truncate_gradient=2)
    f = pytensor.function([s, a], pytensor.grad(final, [s, a]), mode=PLAIN)
    before = pytensor.function(
        [s, a], fori_loop(0, 3, lambda i, c: pt.sin(a * c) + s, 0.3), mode=PLAIN
    )(0.6, 0.7)

    def last_two(s, a):
        c = before
        for _ in range(2):
            c = np.sin(a * c) + s
        return [c]

    np.testing.assert_allclose(f(0.6, 0.7), slopes(last_two, [0.6, 0.7])[0], rtol=1e-8)


# -- taps that look further back than the cut --------------------------------------------------------


def with_taps(taps, k, n, step_taps=(0,), back=False):
    """A loop of two states, one of them with taps, and a trace that is no state."""
    start = pt.dvector("start")

    def tapped(*args):
        rows, past, c, a = args[: len(step_taps)], args[len(step_taps) : -2], args[-2], args[-1]
        new = pt.tanh(sum(rows) + a * sum((j + 1.0) * v for j, v in enumerate(past)) + 0.5 * c)
        return new, pt.tanh(c * a + past[0]), new * a * past[0]

    outs = pytensor.scan(
        tapped,
        sequences=[{"input": x, "taps": list(step_taps)}],
        outputs_info=[{"initial": start, "taps": taps}, s, None],
        non_sequences=[a],
        n_steps=n,
        truncate_gradient=k,
        go_backwards=back,
        return_updates=False,
    )
    inputs = [x, start, s, a]
    return inputs, (outs[0] ** 2).sum() + outs[1][-1] ** 2 + (outs[2] * outs[0][::-1]).sum()


# taps, cut, steps, taps of the sequence, backwards; -10 is a ring buffer
TAPS = [
    ([-3, -1], 2, 4, (0,), False),
    ([-2, -1], 3, 4, (-1, 0), True),
    ([-3], 3, 4, (0,), False),
    ([-4, -2], 1, 3, (0, 2), False),
    ([-10, -1], 3, 5, (0,), True),
    ([-3, -1], 4, 4, (0,), False),  # nothing is cut off
]


@pytest.mark.slow
@pytest.mark.parametrize("case", TAPS)
def test_initial_rows_that_the_last_steps_read_have_a_gradient(case):
    taps, k, n, step_taps, back = case
    inputs, cost = with_taps(*case)
    rng = np.random.default_rng(0)
    rows = n + max(step_taps) - min(step_taps)
    at = [rng.normal(size=rows), rng.normal(size=-min(taps)), 0.6, 0.7]
    by_pytensor = pytensor.grad(cost, inputs)
    expected = pytensor.function(inputs, by_pytensor, mode=PLAIN)(*at)
    if k < n and k - min(taps) > n:
        assert 0 < np.count_nonzero(expected[1]) < -min(taps)
    f = jaxify(inputs, cost)
    by_jax = jax.jit(jax.grad(f, argnums=range(4)))(*at)
    graph = transformed(f.program, lambda h: grad(h, argnums=range(4))).graph
    in_the_ir = evaluate(graph, *map(np.asarray, at))
    for actual in (by_jax, in_the_ir):
        for g, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)


@pytest.mark.slow
def test_native_gradients_of_initial_rows():
    inputs, cost = with_taps(*TAPS[0])
    at = [X, np.array([0.1, -0.4, 0.3]), 0.6, 0.7]
    actual = grad(jaxify(inputs, cost, backend="numba"), argnums=range(4))(*at)
    expected = pytensor.function(inputs, pytensor.grad(cost, inputs), mode=PLAIN)(*at)
    for g, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_lag_is_a_tap(reverse):
    start = pt.dvector("start")
    final, ys = scan(
        lambda c, r: (new := pt.tanh(a * c[0] + 2.0 * c[1] + r), new),
        lag(start, [1, 3]),
        x,
        truncate_gradient=2,
        reverse=reverse,
        strict=False,
    )
    legacy = pytensor.scan(
        lambda r, far, last, a: pt.tanh(a * last + 2.0 * far + r),
        sequences=[x],
        outputs_info=[{"initial": start, "taps": [-3, -1]}],
        non_sequences=[a],
        go_backwards=reverse,
        truncate_gradient=2,
        return_updates=False,
    )
    at = (X, np.array([0.1, -0.4, 0.3]), 0.7)
    by_ours, by_legacy = (
        pytensor.function([x, start, a], pytensor.grad((y**2).sum(), [x, start, a]), mode=PLAIN)
        for y in (ys, legacy)
    )
    for g, e in zip(by_ours(*at), by_legacy(*at), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    # An initial row that is still there at the end was computed by no step.
    by_start = pytensor.function([x, start, a], pytensor.grad(final[0], start), mode=PLAIN)
    assert by_start(X[:2], *at[1:]).tolist() == [0, 0, 1]
    assert by_start(X[:0], *at[1:]).tolist() == [1, 0, 0]
