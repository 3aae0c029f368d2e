"""Searches among sorted values, against NumPy's and JAX's."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from loopax.numba_backend.runtime.ordering import place_of, places_of

NUMBERS = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan])


@njit
def at_once(xs, values, right, actual):
    places_of(xs, values, right, actual)


@njit
def one_by_one(xs, values, right, actual):
    for k in range(len(xs)):
        actual[k] = place_of(xs[k], values, right)


def places(xs, values, right, function=at_once):
    actual = np.full(len(xs), -1)
    function(np.array(xs, "float64"), np.array(values, "float64"), right, actual)
    return actual


@given(st.lists(NUMBERS, max_size=12), st.lists(NUMBERS, max_size=12), st.booleans(), st.booleans())
def test_sorted_values(values, xs, right, are_sorted):
    values, xs = np.sort(values), np.sort(xs) if are_sorted else xs
    expected = np.searchsorted(values, xs, "right" if right else "left")
    for function in (at_once, one_by_one):
        np.testing.assert_array_equal(places(xs, values, right, function), expected)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 33, 1000])
def test_many(n, right):
    rng = np.random.default_rng(n)
    values, side = np.sort(rng.integers(0, n, n)), "right" if right else "left"
    for xs in (rng.uniform(-1, n + 1, 200), np.sort(rng.integers(-1, n + 1, 200)), values):
        np.testing.assert_array_equal(places(xs, values, right), np.searchsorted(values, xs, side))


@pytest.mark.parametrize("right", [False, True])
def test_values_that_are_not_sorted(right):
    """As JAX has it, whose comparisons NumPy does not make."""
    rng = np.random.default_rng(0)
    for n in (2, 3, 8, 21):
        values, xs = rng.normal(size=n), rng.normal(size=30)
        values[::5] = np.nan
        expected = jnp.searchsorted(values, xs, side="right" if right else "left")
        for function in (at_once, one_by_one):
            np.testing.assert_array_equal(places(xs, values, right, function), expected)
