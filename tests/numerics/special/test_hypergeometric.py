"""Gauss's hypergeometric function, and its derivatives, against SciPy."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special as sp

from loopax.numerics.special.hypergeometric import hyp2f1
from tests.jax_backend.interpreted import interpreted
from tests.numerics.special.closeness import close
from tests.support.scalar_grid import within


@pytest.mark.slow
def test_hyp2f1():
    """Against SciPy: on the series' own ground, and on the host elsewhere; nan stays nan."""
    p = [-3.0, -1.5, -0.3, 0, 0.5, 1, 2.25, 7]
    grid = [m.ravel() for m in np.meshgrid(p, p, p, [-1e6, -5, -0.5, 0, 0.3, 0.89])]
    actual = within(120, lambda: np.asarray(jax.jit(hyp2f1)(*grid)))
    close(actual, sp.hyp2f1(*grid), rtol=1e-7)
    hard = [(1.0, 2, 3, 0.99), (1e300, 1, 1, 0.5), (np.inf, 1, 2, 0.5), (1.0, 2, 3, 1.0)]
    hard += [tuple(np.nan if j == k else 0.5 for j in range(4)) for k in range(4)]
    columns = [np.array(c) for c in zip(*hard, strict=True)]
    actual = within(120, lambda: np.asarray(jax.jit(hyp2f1)(*columns)))
    close(actual, sp.hyp2f1(*columns))
    assert np.isnan(actual[-4:]).all()
    # Summed element by element under vmap: rows that are hard do not change the others.
    rows = jax.vmap(hyp2f1, (0, None, None, 0))(
        jnp.arange(3.0), 1.0, 2.0, jnp.array([0.5, -3, 0.99])
    )
    close(rows, sp.hyp2f1(np.arange(3.0), 1.0, 2.0, [0.5, -3, 0.99]))


@pytest.mark.slow
def test_derivatives_of_hyp2f1():
    at, h = (0.5, 1.2, 2.3, 0.4), 1e-6
    actual = jax.jit(jax.grad(hyp2f1, (0, 1, 2, 3)))(*at)
    step = h * np.eye(4)
    expected = [(sp.hyp2f1(*(at + s)) - sp.hyp2f1(*(at - s))) / (2 * h) for s in step]
    close(actual, expected, rtol=1e-7)
    assert np.isnan(jax.grad(hyp2f1)(0.5, 1.2, 2.3, 0.999))  # not known there, and it says so


def test_where_z_is_zero_no_parameter_matters():
    """There the function is 1, at a pole in c and for a large parameter too."""
    a, b, c, z = np.array([[0, 0.5, 40], [0, 0.3, 0.3], [0, -1, 1], [0, 0, 0]])
    slopes = interpreted(jax.grad(lambda a: hyp2f1(a, b, c, z).sum()))(a)
    np.testing.assert_array_equal(slopes, 0)


def test_second_derivatives_by_a_parameter():
    """Known for a large one where z is 0. Where the first derivative is NaN the second is not 0."""

    def along_z(z):
        by_a = jax.grad(lambda a, z: hyp2f1(a, 0.3, jnp.ones(3), z).sum())
        return jax.jvp(lambda z: by_a(jnp.array([40.0, 40.0, -40.5]), z), (z,), (jnp.ones(3),))[1]

    with mpmath.workdps(40):
        by_a = mpmath.diff(lambda a, z: mpmath.hyp2f1(a, 0.3, 1, z), (40, 0.1), (1, 1))
    close(interpreted(along_z)(np.array([0, 0.1, 0.1])), [0.3, float(by_a), np.nan])
