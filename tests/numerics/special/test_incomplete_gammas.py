"""The incomplete gamma functions and their derivatives against SciPy; that they end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

from loopax.numerics.special import incomplete_gammas
from tests.numerics.special.closeness import close
from tests.support.scalar_grid import within


@pytest.mark.slow
def test_incomplete_gammas_end():
    """The sums have bounds: `gammainc(1e300, 1e300)` never came back."""
    some = [0, 1e-300, 1e-7, 0.05, 0.7, 2.5, 88.5, 1e3, 1e4, 1.01e4, 1e6, 1.001e6, 1e10, 1e10 + 1e5]
    some += [1e17, 1e300, np.inf, np.nan, -1.0]
    k, x = (m.ravel() for m in np.meshgrid(some, some))
    for ours, scipy in (
        (incomplete_gammas.gammainc, sp.gammainc),
        (incomplete_gammas.gammaincc, sp.gammaincc),
    ):
        actual = within(240, lambda ours=ours: np.asarray(jax.jit(ours)(k, x)))
        close(actual, scipy(k, x), atol=1e-300)
    floats = incomplete_gammas.gammainc(jnp.float32(1000), jnp.float32(1000))
    close(floats, sp.gammainc(1000, 1000), rtol=1e-6)


@pytest.mark.slow  # XLA compiles the sums for ten seconds
def test_derivatives_of_incomplete_gammas():
    k = np.array([0.05, 2.5, 3e4])
    x, h = k * 0.99, 1e-4 * np.minimum(k, np.sqrt(k))
    for ours, scipy in (
        (incomplete_gammas.gammainc, sp.gammainc),
        (incomplete_gammas.gammaincc, sp.gammaincc),
    ):
        slopes = jax.jit(jax.grad(lambda k, x, f=ours: f(k, x).sum(), (0, 1)))(k, x)
        by_k = (scipy(k + h, x) - scipy(k - h, x)) / (2 * h)
        by_x = (scipy(k, x + h) - scipy(k, x - h)) / (2 * h)
        close(slopes, [by_k, by_x], rtol=1e-4)
    assert jax.grad(incomplete_gammas.gammainc, 1)(1.0, 0.0) == 1.0  # PyTensor's is 0 * log(0)
