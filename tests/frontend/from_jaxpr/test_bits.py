"""Functions whose results are equal to XLA's to the last bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import loopax
from tests.frontend.from_jaxpr.importing import in_a_loop, in_the_ir


def pairs_of(dtype: str) -> tuple[Any, Any]:
    """Pairs of floats where the distance to the next float changes, or is that of subnormal ones."""
    info = np.finfo(dtype)
    positive = [0, info.tiny, info.tiny * 2, 1, 1 - info.epsneg, 1 + info.eps, 2, 3.7, info.max]
    positive += [info.smallest_subnormal, 3 * info.smallest_subnormal, np.inf, np.nan]
    values = np.array(positive, dtype)
    x, y = np.meshgrid(np.concatenate([values, -values]), np.concatenate([values, -values]))
    return x.ravel(), y.ravel()


def assert_same_bits(actual: Any, expected: Any) -> None:
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    bits = [np.where(np.isnan(x), 0, x).view(f"u{x.itemsize}") for x in (actual, expected)]
    np.testing.assert_array_equal(*bits)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_next_float(dtype: str) -> None:
    pairs = pairs_of(dtype)
    fast = loopax.native(in_a_loop(jnp.nextafter), loops="native")
    assert_same_bits(fast(*pairs), jax.jit(jnp.nextafter)(*pairs))
    assert all(": native, " in line for line in fast.remarks), fast.remarks
    with np.errstate(all="ignore"):
        assert_same_bits(in_the_ir(jnp.nextafter, *pairs)[0], np.nextafter(*pairs))


def test_truncated_normal_draws_are_native_and_within_their_bounds() -> None:
    def draws(key: Any) -> Any:
        def step(key: Any, bound: Any) -> Any:
            key, k = jax.random.split(key)
            return key, jax.random.truncated_normal(k, bound, bound + 1e-3)

        return lax.scan(step, key, jnp.linspace(-3.0, 3.0, 50))[1]

    fast, key = loopax.native(draws, loops="native"), jax.random.key(2)
    xs = fast(key)
    np.testing.assert_allclose(xs, draws(key), rtol=1e-9)
    assert ": native, " in fast.remarks[0]
    bounds = np.linspace(-3.0, 3.0, 50)
    assert (xs > bounds).all() and (xs < bounds + 1e-3).all()


def zeros_of_both_signs(x: Any) -> Any:
    return x * 0.0, 0.0 - x, jnp.mod(x, 1.0), jnp.fmod(x, 2.0), jnp.fmod(x, -2.0), jnp.sign(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_signs_of_zeros(dtype: str) -> None:
    x = np.array([0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 2.0, -4.0, np.nan], dtype)
    fast = loopax.native(in_a_loop(zeros_of_both_signs), loops="native")
    expected = jax.jit(zeros_of_both_signs)(x)
    for actual, wanted in zip(jax.tree.leaves(fast(x)), jax.tree.leaves(expected), strict=True):
        assert_same_bits(actual, wanted)
    assert all(": native, " in line for line in fast.remarks), fast.remarks


def test_a_constant_negative_zero_is_no_zero() -> None:
    """PyTensor has one constant for both zeros, so that the loop stays a JAX loop."""

    def angles(xs: Any) -> Any:
        def step(total: Any, x: Any) -> Any:
            return total + 0.0 * x, (
                jnp.arctan2(x, 0.0),
                jnp.arctan2(x, -0.0),
                1 / jnp.full(2, -0.0),
            )

        return lax.scan(step, 0.0, xs)

    fast = loopax.native(angles, loops="native")
    xs = np.array([0.0, -0.0, 1.0])
    for actual, wanted in zip(jax.tree.leaves(fast(xs)), jax.tree.leaves(angles(xs)), strict=True):
        np.testing.assert_array_equal(actual, wanted)
    assert "the constant -0.0" in fast.remarks[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 3, 12])
def test_the_largest_elements_are_in_total_order(dtype: str, k: int) -> None:
    """A nan with a sign is the smallest, -0 is less than 0, and subnormal numbers are no zeros."""
    positive = pairs_of(dtype)[0][:13]
    row = np.concatenate([positive, -positive, positive[::2]]).astype(dtype)
    rows = np.stack([row, row[::-1], np.roll(row, 7), np.resize(row[-1:], row.shape)])

    def largest(x: Any) -> Any:
        return lax.top_k(x, k)

    fast = loopax.native(in_a_loop(largest), loops="native")
    for actual, expected in zip(fast(rows), jax.jit(largest)(rows), strict=True):
        assert_same_bits(actual, expected)
    assert all(": native, " in line for line in fast.remarks), fast.remarks


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_comparisons_in_total_order(dtype: str) -> None:
    x, y = pairs_of(dtype)
    comparisons = [lax.lt_to_p.bind, lax.le_to_p.bind, lax.eq_to_p.bind]

    def compared(x: Any, y: Any) -> Any:
        return [compare(x, y) for compare in comparisons]

    fast = loopax.native(in_a_loop(compared), loops="native")
    for actual, expected in zip(fast(x, y), jax.jit(compared)(x, y), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert all(": native, " in line for line in fast.remarks), fast.remarks
