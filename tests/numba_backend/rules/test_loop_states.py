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


# Steps of the states a and b (9 x 9) and v (9), and whether ``a`` and ``b`` are overwritten by element.
UPDATES = {
    "sums": (lambda a, b, v, i: (a + v * i, b * 0.5 + v[:, None], v + 1), True, True),
    "of a row of products": (
        lambda a, b, v, i: (a + v[:, None] * b[0], b * 2, v * 0.5),
        True,
        False,
    ),
    "read by another": (lambda a, b, v, i: (a + b, b * 0.5 + i, v), True, False),
    "read twice": (lambda a, b, v, i: (a + a[0], b + b.T, v), False, False),
    "each other": (lambda a, b, v, i: (b + 1.0, a * 0.5, v), False, False),
    "a row broadcast": (lambda a, b, v, i: (a + i, pt.zeros_like(b) + v * b[0, 0], v), True, False),
    "through a function": (
        lambda a, b, v, i: (abs(a) ** 0.5 + v, pt.sqrt(abs(b + i)), v * 2),
        True,
        True,
    ),
    "turned": (lambda a, b, v, i: (a.T + 1, b[::-1] * i, v), False, False),
}


@pytest.mark.parametrize("n_traces", [0, 1])
@pytest.mark.parametrize("name", UPDATES)
def test_states_that_are_overwritten_by_element(name, n_traces):
    """Only a state that nothing else reads, and whose successor is no trace."""
    update, first, second = UPDATES[name]
    a, b = pt.matrix("a", shape=(9, 9)), pt.matrix("b", shape=(9, 9))
    v = pt.vector("v", shape=(9,))

    def step(carry, i):
        new = update(*carry, i)
        return new, [new[0] * 1.0 + new[1]] * n_traces

    states, _ = out = scan(step, (a, b, v), pt.arange(1.0, 5.0))
    values = RNG.normal(size=(9, 9)), RNG.normal(size=(9, 9)), RNG.normal(size=9)
    outputs = [*states, *out[1]]
    run = assert_agrees([a, b, v], outputs, values, rtol=1e-12)
    n_rooms = run.source.count("empty((9, 9), np.float64)")
    if not n_traces:
        assert n_rooms == 4 - first - second, run.source
