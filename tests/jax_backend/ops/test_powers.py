"""Powers of integers, whose exponents are known while JAX traces, or only when the program runs.

JAX multiplies out one known exponent, refuses a negative one, and reads six bits of the others.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import jaxify

BASES = np.array([3, -1, 1, 2, 7])
EXPONENTS = {"small": 3, "large": 67, "negative": -3, "negative and odd": -1, "zero": 0}
EXPONENTS |= {"of each base": np.array([67, 65, -4, 64, 130])}


def truncated(base, exponent):
    """Python's exact power, modulo 2**64; a negative one truncated as in C."""
    if exponent < 0:
        return 0 if base not in (1, -1) else base**-exponent
    return ((base**exponent + 2**63) % 2**64) - 2**63


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", EXPONENTS)
def test_powers_of_integers(name, is_known):
    exponent = np.asarray(EXPONENTS[name])
    x, k = pt.lvector("x"), pt.tensor("k", dtype="int64", shape=(None,) * exponent.ndim)
    pairs = zip(BASES, np.broadcast_to(exponent, BASES.shape), strict=True)
    expected = [truncated(int(base), int(n)) for base, n in pairs]
    inputs, values = ([x], [BASES]) if is_known else ([x, k], [BASES, exponent])
    out = x ** (pt.constant(exponent) if is_known else k)
    for f in (jaxify(inputs, out, backend="numba"), jax.jit(jaxify(inputs, out, loops="xla"))):
        np.testing.assert_array_equal(np.asarray(f(*values)), expected)


@pytest.mark.parametrize("n", [0, 1])
def test_a_known_exponent_of_an_array_of_jax(n):
    m, k = pt.bmatrix("m"), pt.bscalar("k")
    f = jaxify([m, k], m**k, loops="xla", jit=False)
    powers = f(jnp.full((n, 2), 3, "int8"), np.int8(-97))
    np.testing.assert_array_equal(np.asarray(powers), np.zeros((n, 2), "int8"))
