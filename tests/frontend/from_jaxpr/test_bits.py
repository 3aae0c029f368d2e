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


def assert_same_bits(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    bits = [np.where(np.isnan(x), 0, x).view(f"u{x.itemsize}") for x in (found, expected)]
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
