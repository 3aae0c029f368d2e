"""The gamma function's logarithm and its derivatives, at the ends, and where SciPy is wrong."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

from loopax.numerics.special import polygammas
from tests.numerics.special.closeness import close


@pytest.mark.slow
def test_the_ends():
    x = np.array([0.0, -0.0, np.inf, -np.inf, -3.0, np.nan])
    assert str(polygammas.psi(x).tolist()) == "[-inf, inf, inf, nan, nan, nan]"
    assert str(polygammas.tri_gamma(x).tolist()) == "[inf, inf, 0.0, inf, inf, nan]"
    assert str(polygammas.gammaln(x).tolist()) == "[inf, inf, inf, -inf, inf, nan]"


def test_polygamma_where_scipy_has_only_rounding_errors():
    """At half integers the poles on both sides cancel in odd powers, and leave the sum from 1 - x on."""
    k = np.arange(40.0)
    expected = -sp.factorial(20) * np.sum((21.5 + k) ** -21.0)
    close(polygammas.polygamma(20, jnp.asarray(-20.5)), expected)
    assert (
        abs(sp.polygamma(20, -20.5)) > 1e8
    )  # to go from here, and from the page, when it is right
