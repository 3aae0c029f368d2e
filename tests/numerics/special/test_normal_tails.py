"""Functions of the normal distribution's tails, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

from loopax.numerics.special import normal_tails
from tests.numerics.special.closeness import close

TAILS = np.array(
    [
        0,
        -1e-300,
        -1e-17,
        -0.005,
        -0.3,
        -2,
        -2.1,
        -50,
        -72,
        -75,
        -744,
        -800,
        -1e6,
        -1e19,
        -1e21,
        -1e300,
    ]
)


@pytest.mark.slow
def test_ndtri_exp():
    x = np.array([*TAILS, -np.inf, 1e-17, 1, np.nan])
    close(jax.jit(normal_tails.ndtri_exp)(x), sp.ndtri_exp(x), rtol=1e-11)
    floats = x[(x > -1e30) & (x < -1e-30)].astype("float32")
    expected = sp.ndtri_exp(floats.astype("float64"))
    close(jax.jit(normal_tails.ndtri_exp)(floats), expected, rtol=1e-5)
    inside = TAILS[(TAILS < -1e-10) & (TAILS > -1e5)]
    z = sp.ndtri_exp(inside)
    expected = np.sqrt(2 * np.pi) * np.exp(inside + z**2 / 2)
    slopes = jax.jit(jax.vmap(jax.grad(normal_tails.ndtri_exp)))(np.array([*inside, -1e300]))
    close(slopes[:-1], expected, rtol=1e-9)
    assert slopes[-1] > 0


@pytest.mark.slow
def test_erfcinv_and_owens_t_at_the_ends():
    x = np.array([-1.0, 0, 2.2250738585072014e-308, 1e-300, 1e-29, 0.3, 1, 2 - 1e-10, 2, 2.1])
    close(normal_tails.erfcinv(jnp.asarray(x)), sp.erfcinv(x), rtol=1e-11)
    h, a = np.array([0, 0, 1.5, -3, np.inf]), np.array([np.inf, -np.inf, np.inf, -np.inf, np.inf])
    close(normal_tails.owens_t(h, a), sp.owens_t(h, a))


@pytest.mark.parametrize("name", ["erfcx", "erfcinv", "ndtri_exp"])
def test_derivatives_of_float32_are_float32(name):
    x = np.float32([0.5]) if name != "ndtri_exp" else np.float32([-0.5])
    function = getattr(normal_tails, name)
    value, tangent = jax.eval_shape(lambda x: jax.jvp(function, (x,), (x,)), x)
    assert value.dtype == tangent.dtype == "float32"
