"""``truncate_gradient``: the gradients that `pytensor.scan` gives, of the loop's last steps only."""

import functools

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import pushforward

from loopax import fori_loop, jaxify, scan
from tests.assorted_loops import PLAIN, X, a, s, slopes, x


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


@pytest.mark.parametrize(("k", "reverse"), CASES)
def test_as_pytensor_scan(k, reverse):
    for n in (1, 3, 4):
        found = gradients(ours, k, reverse)(X[:n], 0.6, 0.7)
        expected = gradients(legacy, k, reverse)(X[:n], 0.6, 0.7)
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("k", "reverse"), [(1, False), (3, True)])
def test_no_steps(k, reverse):
    found = gradients(ours, k, reverse)(X[:0], 0.6, 0.7)
    for g, e in zip(found, [np.zeros(0), 1.2, *[0.0] * 7], strict=True):
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


@pytest.mark.parametrize("checkpoint", [2, "sqrt"])
def test_with_checkpoints(checkpoint):
    found = gradients(ours, 3, True, checkpoint=checkpoint)(X, 0.6, 0.7)
    for f, e in zip(found, gradients(ours, 3, True)(X, 0.6, 0.7), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-15)


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
    found = pytensor.function([x, s, a], second, mode=PLAIN, on_unused_input="ignore")(*at)
    for g, e in zip(found, by_jax, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-14)
    for own in (False, True):
        along = pushforward(outs, [x, a], [pt.ones_like(x), pt.ones(())], use_op_pushforward=own)
        found = pytensor.function([x, s, a], along, mode=PLAIN)(*at)
        by_grad = gradients(ours, 2, False)(*at)
        expected = [by_grad[k].sum() + by_grad[k + 2] for k in (0, 3, 6)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


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
