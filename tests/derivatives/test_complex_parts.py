"""Derivatives of functions from real to real numbers with complex numbers inside."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax.ir.derivatives.traversal import pull_back
from tests.support.compare import FAST_COMPILE

x = pt.dvector("x")
X = np.array([0.4, 1.2, 0.8])
Z = pt.complex(x, x[::-1] * x + 0.3)
PARTS = {
    "product": pt.prod(Z),
    "product along an axis": pt.prod(Z[None] * np.ones((2, 1)), axis=1),
    "cumulative product": pt.cumprod(Z),
    "conjugate": pt.conj(Z) * Z[::-1],
    "choice among real and complex numbers": pt.switch(x > 0.5, Z, x),
    "real numbers made complex": x.astype("complex128") * Z,
}


def cost(part):
    weights = pt.arange(1, part.size + 1).reshape(part.shape, ndim=part.type.ndim)
    return (pt.real(part) * weights).sum() + pt.sqr(pt.imag(part)).sum()


def differences(y):
    f = pytensor.function([x], y, mode=FAST_COMPILE)
    return np.array([(f(X + e) - f(X - e)) / 2e-6 for e in 1e-6 * np.eye(3)])


@pytest.mark.parametrize("name", PARTS)
def test_gradients(name):
    y = cost(PARTS[name])
    (slope,) = pull_back([x], [y], [pt.ones(())])
    found = pytensor.function([x], slope, mode=FAST_COMPILE)(X)
    np.testing.assert_allclose(found, differences(y), rtol=1e-6)


@pytest.mark.parametrize("name", ["cumulative product", "choice among real and complex numbers"])
@pytest.mark.parametrize("loops", ["native", "xla"])
def test_gradients_by_jax(name, loops):
    y = cost(PARTS[name])
    np.testing.assert_allclose(
        jax.grad(loopax.jaxify([x], y, loops=loops))(X), differences(y), rtol=1e-6
    )


def test_sign_of_a_complex_number():
    """PyTensor's derivative is 0: native code has none, and `jax.grad` is JAX's."""
    try:
        y = cost(pt.sign(Z) * Z)
    except TypeError:
        pytest.skip("PyTensor 3.0 has no sign of a complex number")
    with pytest.raises(NotImplementedError, match="sign of a complex number"):
        pull_back([x], [y], [pt.ones(())])
    for loops in ("native", "xla"):
        found = jax.grad(loopax.jaxify([x], y, loops=loops))(X)
        np.testing.assert_allclose(found, differences(y), rtol=1e-6)
