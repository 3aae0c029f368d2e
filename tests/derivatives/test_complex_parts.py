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
C = pt.complex(pt.outer(x, x) + 3 * pt.eye(3), pt.outer(x, x[::-1]) / 4 - x)
PARTS |= {
    "solve": pt.linalg.solve(C, Z),
    "solve of real matrix": pt.linalg.solve(pt.real(C), Z),
    "solve of real numbers": pt.linalg.solve(C, x),
    "triangular solve": pt.linalg.solve_triangular(C, Z, lower=True),
    "triangular solve of conjugates": pt.linalg.solve_triangular(C, Z, trans="C"),
    "inverse": pt.linalg.inv(C),
    "determinant": pt.linalg.det(C),
    "LU": pt.linalg.lu(C)[2],
    "matrix exponential": pt.linalg.expm(C * 0.1),
    "convolution": pt.signal.convolve1d(Z, Z[:2] * 2),
    "convolution of real numbers": pt.signal.convolve1d(x, Z),
}
NOT_HOLOMORPHIC = {
    "QR": lambda a: pt.linalg.qr(a)[1],
    "pseudoinverse": pt.linalg.pinv,
    "eigenvalues": lambda a: pt.linalg.eigh(a)[0],
    "Cholesky": pt.linalg.cholesky,
    "Hermitian solve": lambda a: pt.linalg.solve(a, Z, assume_a="her"),
}


def cost(part):
    weights = pt.arange(1, part.size + 1).reshape(part.shape, ndim=part.type.ndim)
    return (pt.real(part) * weights).sum() + pt.sqr(pt.imag(part)).sum()


def differences(y):
    f = pytensor.function([x], y, mode=FAST_COMPILE)
    return np.array([(f(X + e) - f(X - e)) / 2e-6 for e in 1e-6 * np.eye(3)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PARTS)
def test_gradients(name):
    y = cost(PARTS[name])
    (slope,) = pull_back([x], [y], [pt.ones(())])
    actual = pytensor.function([x], slope, mode=FAST_COMPILE)(X)
    np.testing.assert_allclose(actual, differences(y), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cumulative product", "choice among real and complex numbers", "solve"]
)
@pytest.mark.parametrize("loops", ["native", "xla"])
def test_gradients_by_jax(name, loops):
    y = cost(PARTS[name])
    np.testing.assert_allclose(
        jax.grad(loopax.jaxify([x], y, loops=loops))(X), differences(y), rtol=1e-6
    )


@pytest.mark.parametrize("name", NOT_HOLOMORPHIC)
def test_rules_without_conjugates_are_refused(name):
    y = cost(NOT_HOLOMORPHIC[name](C))
    with pytest.raises(NotImplementedError, match="lacks conjugates of complex numbers"):
        pull_back([x], [y], [pt.ones(())])


def test_a_function_without_a_pullback_for_complex_numbers_says_so():
    with pytest.raises(NotImplementedError, match="PyTensor has no pullback of Exp of complex"):
        pull_back([x], [cost(pt.exp(C))], [pt.ones(())])


def test_sign_of_a_complex_number():
    """PyTensor's derivative is 0: native code has none, and `jax.grad` is JAX's."""
    try:
        y = cost(pt.sign(Z) * Z)
    except TypeError:
        pytest.skip("PyTensor 3.0 has no sign of a complex number")
    with pytest.raises(NotImplementedError, match="sign of a complex number"):
        pull_back([x], [y], [pt.ones(())])
    for loops in ("native", "xla"):
        actual = jax.grad(loopax.jaxify([x], y, loops=loops))(X)
        np.testing.assert_allclose(actual, differences(y), rtol=1e-6)
