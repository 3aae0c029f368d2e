"""The memory of states: small arrays are copied, larger ones exchange theirs."""

import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import scan
from tests.numba_backend.agreement import assert_agrees

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rows", [7, 8])  # 63 elements are copied, 72 are not
def test_states_that_take_the_place_of_each_other(rows):
    """Three in a circle, one that keeps its value, one that is read in another order, one of a sum."""
    shape = (9, rows)
    a, b, c, d = arrays = [pt.matrix(name, shape=shape) for name in "abcd"]

    def step(carry, s):
        a, b, c, d, e, f = carry
        return (b, c, a + 1, d, (b - e)[::-1], a * s), e[0] + f[1]

    states, trace = scan(step, (*arrays, a + 1, b * 2), pt.arange(1.0, 6.0))
    values = [RNG.normal(size=shape) for _ in arrays]
    run = assert_agrees(arrays, [*states, trace], values, rtol=1e-12)
    assert (f"on_stack((9, {rows})" in run.source) == (rows == 7)


def test_a_successor_of_two_states_of_static_and_of_unknown_length():
    """The second state takes the memory of the array, which the first one copies before."""
    g = pt.vector("g")

    def step(carry, i):
        new = pt.sin(carry[1]) + g * i
        return (new, new), None

    states, _ = scan(step, (pt.zeros(9), g), pt.arange(5))
    assert_agrees([g], list(states), [RNG.normal(size=9)], rtol=1e-12)


def test_a_successor_that_is_a_view_of_another_state():
    a, k = pt.vector("a", shape=(12,)), pt.iscalar("k")

    def step(carry, i):
        a, _ = carry
        return (a * 0.5 + 1, a.reshape((k, -1))), None

    states, _ = scan(step, (a, pt.zeros((1, 12))), pt.arange(3))
    assert_agrees([a, k], list(states), [RNG.normal(size=12), np.int32(1)], rtol=1e-12)


def test_a_successor_that_is_a_state_whose_length_changes():
    a, b = pt.vector("a", shape=(9,)), pt.vector("b")

    def step(carry, i):
        a, b = carry
        longer = pt.concatenate([b + a[0], pt.zeros(i // 2)])
        return (pt.specify_shape(b, (9,)), longer), None

    states, _ = scan(step, (a, b), pt.arange(3))
    assert_agrees([a, b], list(states), [RNG.normal(size=9) for _ in "ab"], rtol=1e-12)
