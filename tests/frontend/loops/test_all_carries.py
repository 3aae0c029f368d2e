"""``scan(..., all_carries=True)``: the carry before each step, and the final one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

from loopax import LoopTypeError, PaddedArray, explain, jaxify, lag, scan
from tests.support.compare import FAST_COMPILE, assert_agrees

XS = np.array([0.5, -1.0, 2.0, 3.0])
x, a = pt.dvector("x"), pt.dscalar("a")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_all_carries(n, reverse):
    def step(c, r):
        c = {"v": 0.5 * c["v"] + a * r, "k": c["k"] + 1}
        return c, c["v"] ** 2

    carries, ys = scan(step, {"v": pt.ones(2), "k": 0}, x, reverse=reverse, all_carries=True)
    grad_wrt = [x, a] if n else []
    actual = assert_agrees(
        [x, a], [carries["v"], carries["k"], ys], [XS[:n], 0.3], grad_wrt=grad_wrt
    )
    v, rows = np.ones(2), [np.ones(2)]
    for r in XS[:n][:: -1 if reverse else 1]:
        v = 0.5 * v + 0.3 * r
        rows.append(v)
    order = slice(None, None, -1) if reverse else slice(None)
    np.testing.assert_allclose(actual[0], rows[order], rtol=1e-12)
    np.testing.assert_array_equal(actual[1], np.arange(n + 1)[order])
    np.testing.assert_allclose(actual[2], np.square(rows[1:])[order].reshape(n, 2), rtol=1e-12)


@pytest.mark.slow
def test_in_native_code_and_its_derivatives():
    carries, _ = scan(lambda c, r: (pt.sin(a * c) + r, None), 1.0, x, all_carries=True)
    assert carries.type.shape == (None,)

    def in_jax(xs, a):
        def step(c, r):
            c = jnp.sin(a * c) + r
            return c, c

        start = jnp.asarray(1.0)
        return jnp.concatenate([start[None], jax.lax.scan(step, start, xs)[1]])

    native = jaxify([x, a], carries, backend="numba")
    np.testing.assert_allclose(native(XS, 0.3), in_jax(XS, 0.3), rtol=1e-12)
    for form in ("xla", "native"):
        f = jaxify([x, a], carries, loops=form)
        np.testing.assert_allclose(f(XS, 0.3), in_jax(XS, 0.3), rtol=1e-12)
        for d in (jax.jacrev, jax.jacfwd, jax.hessian):
            actual, expected = d(f, 1)(XS, 0.3), d(in_jax, 1)(XS, 0.3)
            np.testing.assert_allclose(actual, expected, rtol=1e-10)
        batch = np.stack([XS, 2 * XS])
        actual = jax.vmap(f, (0, None))(batch, 0.3)
        np.testing.assert_allclose(actual, [in_jax(b, 0.3) for b in batch], rtol=1e-12)


def test_it_is_one_loop_and_the_last_row_is_the_final_carry():
    def step(c, r):
        return a * c + r, None

    carries, _ = scan(step, 1.0, x, all_carries=True)
    final, _ = scan(step, 1.0, x)
    assert explain([x, a], [carries, final]).counts_lowered.loops == 1
    np.testing.assert_allclose(*jaxify([x, a], [carries[-1], final])(XS, 0.3), rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
def test_of_a_loop_that_stops(reverse):
    carries, _, stopped = scan(
        lambda c, r: (c + r, None, c + r > 1), 0.0, x, reverse=reverse, all_carries=True
    )
    expected = [0.0, 3.0][::-1] if reverse else [0.0, 0.5, -0.5, 1.5]
    np.testing.assert_allclose(carries.eval({x: XS}), expected)
    f = jaxify([x], carries)
    np.testing.assert_allclose(f(XS), expected)
    trace = jax.jit(f)(XS)
    assert isinstance(trace, PaddedArray)
    np.testing.assert_allclose(np.asarray(trace), expected)
    slope = jax.grad(jaxify([x], (carries**2).sum()))(XS)
    want = jax.grad(lambda v: v[3] ** 2 if reverse else (jnp.cumsum(v[:3]) ** 2).sum())(XS)
    np.testing.assert_allclose(slope, want, rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("far", [3, 12])  # states, and a ring buffer
def test_of_a_lag(reverse, far):
    start = np.linspace(0.0, 1.0, far)
    values, _ = scan(
        lambda c, r: (c[0] * a + c[1] + r, None),
        lag(start, [1, far]),
        x,
        reverse=reverse,
        all_carries=True,
    )
    actual = assert_agrees([x, a], values, [XS, 0.3], grad_wrt=[a])
    by_hand = list(start)
    for r in XS[:: -1 if reverse else 1]:
        by_hand.append(0.3 * by_hand[-1] + by_hand[-far] + r)
    np.testing.assert_allclose(actual, by_hand[:: -1 if reverse else 1], rtol=1e-12)


def test_of_a_generator():
    rng = random_generator_type("rng")

    def step(rng, _):
        following, draw = pt.random.normal(rng=rng, return_next_rng=True)
        return following, draw

    generators, draws = scan(step, rng, length=3, all_carries=True)
    run = pytensor.function([rng], [generators, draws], mode=FAST_COMPILE)
    actual, drawn = run(np.random.default_rng(1))
    assert len(actual) == 4
    again = [g.normal() for g in actual[:3]]  # each is the generator before its step
    np.testing.assert_array_equal(again, drawn)
    keys, in_jax = jaxify([rng], [generators, draws])(jax.random.key(1))
    assert len(keys) == 4 and in_jax.shape == (3,)


def test_with_newtons_method():
    options = {"parallel": "newton"}
    carries, _ = scan(lambda c, r: (pt.tanh(a * c) + r, None), 1.0, x, all_carries=True, **options)
    plain, _ = scan(lambda c, r: (pt.tanh(a * c) + r, None), 1.0, x, all_carries=True)
    np.testing.assert_allclose(*jaxify([x, a], [carries, plain])(XS, 0.3), rtol=1e-8)
    rng = random_generator_type("rng")
    with pytest.raises(LoopTypeError, match="not an array"):
        scan(lambda c, _: (c, None), rng, length=3, all_carries=True, **options)
