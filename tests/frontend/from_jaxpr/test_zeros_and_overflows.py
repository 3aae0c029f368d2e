"""The sign of a zero, which a reciprocal shows, and squares that overflow."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import loopax
from tests.frontend.from_jaxpr.importing import assert_native_agrees, assert_same, in_the_ir

ZEROS = np.array([0.0, -0.0, 0.3, -0.3, 0.5, -2.5])


def test_a_zero_keeps_its_sign_when_it_is_rounded():
    def f(x):
        return 1 / lax.round(x), 1 / lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), 1 / (x // 2)

    assert_same(in_the_ir(f, ZEROS), jax.jit(f)(ZEROS))
    assert_native_agrees(f, ZEROS)


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_squares_of_large_complex_numbers(dtype):
    """One part may overflow where the other does not."""
    large = 1e160 if dtype == "complex128" else 1e20
    z = np.array([large * (1 + 0.1j), large * (1 + 1j), 2 - 3j], dtype)

    def f(z):
        square = lax.square(z)
        return square.real, square.imag

    assert_same(in_the_ir(f, z), jax.jit(f)(z))
    assert_native_agrees(f, z)


def test_complex_constants_that_differ_in_the_sign_of_a_zero():
    """A loop with such a constant stays JAX's: PyTensor merges the two."""

    def f(xs):
        def step(n, x):
            return n + 1, 1 / jnp.imag(jnp.stack([x + complex(1, 0.0), x + complex(1, -0.0)]))

        return lax.scan(step, 0, xs)[1]

    xs = np.array([complex(1, -0.0), 1j])
    fast = loopax.native(f, loops="native")
    np.testing.assert_array_equal(fast(xs), jax.jit(f)(xs))
    assert "-0.0" in " ".join(fast.remarks)
