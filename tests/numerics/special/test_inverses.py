"""Inverses of the incomplete gamma and beta functions, against SciPy, and as inverses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

from loopax.numerics.special import inverses
from loopax.numerics.special.incomplete_gammas import gammainc
from tests.numerics.special.closeness import close

SHARES = np.array([0.0, 1e-6, 0.03, 0.5, 0.97, 1.0])


@pytest.mark.slow
def test_of_the_incomplete_gamma_functions():
    k, p = (m.ravel() for m in np.meshgrid([0.05, 0.7, 2.5, 88.5, 1e4], SHARES))
    close(jax.jit(inverses.gammaincinv)(k, p), sp.gammaincinv(k, p), rtol=1e-8, atol=1e-300)
    close(jax.jit(inverses.gammainccinv)(k, p), sp.gammainccinv(k, p), rtol=1e-8, atol=1e-300)


@pytest.mark.slow
def test_of_the_incomplete_beta_function():
    shapes = [0.5, 3.0, 40.0]
    a, b, p = (m.ravel() for m in np.meshgrid(shapes, shapes, SHARES))
    close(jax.jit(inverses.betaincinv)(a, b, p), sp.betaincinv(a, b, p), rtol=1e-8, atol=1e-300)


@pytest.mark.slow
def test_the_slope_is_one_over_that_of_the_function():
    k, p = jnp.asarray(2.5), jnp.asarray(0.3)
    x = inverses.gammaincinv(k, p)
    close(jax.grad(inverses.gammaincinv, 1)(k, p), 1 / jax.grad(gammainc, 1)(k, x), rtol=1e-8)
