"""Bessel functions against mpmath where SciPy has lost the phase."""

import jax
import mpmath
import numpy as np
import scipy.special as sp

from loopax.numerics.special import bessel
from tests.numerics.special.closeness import close


def test_bessel_functions_far_out():
    """Where SciPy before 1.18 has lost the phase: the first term of DLMF 10.17.3, by mpmath."""
    x = np.array([1e10, 1e17, 1e200, 1e300, np.finfo("float64").max])
    with mpmath.workdps(400):
        first = [mpmath.sqrt(2 / (mpmath.pi * mpmath.mpf(v))) for v in x]
        turns = [mpmath.mpf(v) - mpmath.pi / 4 for v in x]
        expected = [
            [float(a * f(t)) for a, t in zip(first, turns, strict=True)]
            for f in (mpmath.cos, mpmath.sin)
        ]
    close(jax.jit(bessel.j0)(x), expected[0], rtol=1e-9)
    close(jax.jit(bessel.j1)(x), expected[1], rtol=1e-9)


def test_second_derivatives_near_zero():
    """Where ``j1(x) / x`` and its limit cancel."""
    x = np.array([0.0, 1e-200, 1e-9, 0.1, 0.19, 0.21, 3.0])
    close(jax.vmap(jax.grad(jax.grad(bessel.j1)))(x), sp.jvp(1, x, 2), rtol=1e-11)
