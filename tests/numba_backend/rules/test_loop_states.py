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
