"""Affine recurrences and other scans in blocks, against the steps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopax.extensions.parallel.loops.blocks import scan_in_blocks
from loopax.extensions.parallel.loops.recurrence import affine_recurrence


def one_by_one(a, b, start, reads, reverse):
    def step(s, row):
        entries = jnp.where(row[2], s[None], 0) if len(row) > 2 else s[None]
        s = (row[0] * entries).sum(1) + row[1]
        return s, s

    shape = len(b), *a.shape[1:]
    rows = jnp.broadcast_to(a, shape), b
    rows += () if reads is None else (jnp.broadcast_to(reads, shape),)
    return jax.lax.scan(step, start, rows, reverse=reverse)[1]


def some(n, k, m, matrices=None, width=None, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(matrices or n, k, k, width or m)) * 0.5 / k**0.5
    return a, rng.normal(size=(n, k, m)), rng.normal(size=(k, m))


CASES = {
    "one step": (some(1, 1, 1), False),
    "fewer steps than a block": (some(7, 2, 1), False),
    "whole blocks": (some(64, 1, 3), False),
    "blocks and a rest, backwards": (some(331, 2, 2, width=1), True),
    "one matrix": (some(100, 2, 2, matrices=1, width=1), False),
    "one large matrix, backwards": (some(50, 6, 1, matrices=1), True),
    "large matrices": (some(70, 6, 2), False),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_the_states_and_their_derivatives(name):
    args, reverse = CASES[name]
    weights = np.cos(np.arange(args[1].size)).reshape(args[1].shape)

    def both(f):
        def loss(*args):
            return (jnp.sin(f(*args, None, reverse)) * weights).sum()

        return jax.jit(lambda *args: (f(*args, None, reverse), jax.grad(loss, (0, 1, 2))(*args)))(
            *args
        )

    actual, expected = both(affine_recurrence), both(one_by_one)
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_second_derivatives_forwards_over_backwards_and_batches():
    args = tuple(np.stack([x, 0.5 * x]) for x in some(20, 2, 1))

    def curvature(f):
        def loss(*args):
            return (f(*args, None, False) ** 3).sum()

        def along(*args):
            return jax.jvp(jax.grad(loss, (0, 1, 2)), args, args)[1]

        return jax.jit(jax.vmap(along))(*args)

    for x, y in zip(curvature(affine_recurrence), curvature(one_by_one), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


def test_a_million_steps():
    n = 1_000_000
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-0.999, 0.999, size=(n, 1, 1, 1)), rng.normal(size=(n, 1, 1))
    start = np.ones((1, 1))
    actual = jax.jit(affine_recurrence, static_argnums=4)(a, b, start, None, False)
    expected = jax.jit(one_by_one, static_argnums=4)(a, b, start, None, False)
    assert np.abs(actual - expected).max() <= 1e-10 * np.abs(expected).max()
    np.testing.assert_allclose(actual[-1000:], expected[-1000:], rtol=1e-10, atol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
def test_any_associative_operation(reverse):
    """Products of matrices do not commute."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(100, 2, 2)) * 0.7
    start = rng.normal(size=(2, 2))

    def combine(first, second):
        return jnp.einsum("ij...,jk...->ik...", second, first)

    actual = scan_in_blocks(combine, lambda e, s: combine(s, e), rows, start, reverse)
    s, expected = start, np.empty_like(rows)
    for k in reversed(range(100)) if reverse else range(100):
        s = expected[k] = rows[k] @ s
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_there_is_no_loop_over_the_steps():
    args = some(4096, 1, 1)
    text = str(jax.make_jaxpr(lambda *args: affine_recurrence(*args, None, False))(*args))
    assert "length=15" in text and "length=4096" not in text
