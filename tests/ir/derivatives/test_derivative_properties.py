"""Of random loops: the pullback is the transpose of the pushforward, and both are derivatives.

    <v, J u> == <J' v, u> == <v, (f(x + h u) - f(x - h u)) / 2 h>

with ``J u`` by the loops' own pushforward, and by the pullback's pullback.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed
from pytensor.gradient import pullback, pushforward

from tests.support.assorted_loops import PLAIN
from tests.support.random_loops import RANDOM, inputs, loop, recipes, values


def direction(v, k):
    """Numbers of the shape of ``v``, whatever it is."""
    return pt.cos(1.0 + k + pt.arange(v.size).reshape(v.shape))


def dot(xs, ys):
    return sum((x * y).sum() for x, y in zip(xs, ys, strict=True))


def products(recipe):
    """``<v, f>``, ``<J' v, u>``, and ``<v, J u>`` in two ways; of f the floats."""
    given = inputs(recipe)
    outs = [out for out in loop(recipe) if out.type.dtype == "float64"]
    u = [direction(x, k) for k, x in enumerate(given)]
    v = [direction(out, k + 3) for k, out in enumerate(outs)]
    back = pullback(outs, given, v, disconnected_inputs="ignore")
    forth = [
        pushforward(outs, given, u, use_op_pushforward=own, disconnected_outputs="ignore")
        for own in (True, False)
    ]
    return [dot(v, outs), dot(back, u), *[dot(v, t) for t in forth]]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_the_pullback_is_the_transpose_of_the_pushforward(number):
    @seed(number)
    @RANDOM
    @given(recipes())
    def holds(recipe):
        given = inputs(recipe)
        f = pytensor.function(given, products(recipe), mode=PLAIN, on_unused_input="ignore")
        at = values(recipe)
        _, *actual = f(*at)
        u = [np.cos(1.0 + k + np.arange(np.size(x)).reshape(np.shape(x))) for k, x in enumerate(at)]
        h = 1e-5
        ahead, behind = (f(*[x + t * d for x, d in zip(at, u, strict=True)])[0] for t in (h, -h))
        slope = (ahead - behind) / (2 * h)
        np.testing.assert_allclose(actual, slope, rtol=1e-6, atol=1e-8, err_msg=str(recipe))
        np.testing.assert_allclose(actual, actual[0], rtol=1e-9, atol=1e-12, err_msg=str(recipe))

    holds()
