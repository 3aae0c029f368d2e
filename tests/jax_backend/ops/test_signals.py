"""Convolutions, and their derivatives, whose mode follows from the lengths of what is convolved."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.signal import convolve1d
from pytensor.tensor.signal.conv import _blockwise_convolve_1d

from loopax import jaxify

X, K = pt.dmatrix("x"), pt.dmatrix("k")
LONG, SHORT = np.sin(np.arange(18.0)).reshape(2, 9), np.cos(np.arange(8.0)).reshape(2, 4)


def by_pytensor(inputs, outputs, at):
    return pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*at)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("at", [(LONG, SHORT), (SHORT, LONG)], ids=["long", "short"])
@pytest.mark.parametrize("mode", ["full", "valid", "same"])
def test_nothing_runs_on_the_host(mode, at):
    cost = (convolve1d(X, K, mode=mode) ** 2).sum()
    outputs = [cost, *pytensor.grad(cost, [X, K])]
    f = jaxify([X, K], outputs, loops="xla", on_missing="raise")
    for actual, expected in zip(f(*at), by_pytensor([X, K], outputs, at), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_mode_of_a_batch_that_follows_from_an_argument():
    """Of the core op it is made by a cast; the argument becomes static, and the mode with it."""
    n = pt.lscalar("n")
    y = _blockwise_convolve_1d(X, K, pt.alloc(n, 2) > 3)
    f = jaxify([X, K, n], y, loops="xla", on_missing="raise")
    for k in (2, 4):
        [expected] = by_pytensor([X, K, n], [y], (LONG, SHORT, k))
        np.testing.assert_allclose(f(LONG, SHORT, k), expected, rtol=1e-12)
