"""Native derivatives of JAX are those of the stable form, as in JAX's operations."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import expit, log_ndtr, softmax

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE

X = pt.dvector("x")
# erfc(x) is 2 * Phi(-sqrt(2) x), whose logarithm SciPy has far out.
AT_ERFC = np.array([40.0, -3.0])
SLOPE_OF_LOG_ERFC = (
    -2 / np.sqrt(np.pi) * np.exp(-(AT_ERFC**2) - log_ndtr(-np.sqrt(2) * AT_ERFC)) / 2
)
FAR, NEAR_0 = np.array([-1e4, -1e4 + 1]), np.array([800.0, -800.0])
# A function of x whose terms overflow or vanish, where, and its gradient.
FUNCTIONS = {
    "log(sum(exp))": (2 * pt.log(pt.sum(pt.exp(X))), FAR, 2 * softmax(FAR)),
    "its square": (
        pt.log(pt.sum(pt.exp(X))) ** 2,
        FAR,
        2 * (FAR[1] + np.log1p(np.exp(-1.0))) * softmax(FAR),
    ),
    "log(sum(exp)) of rows": (
        pt.log(pt.sum(pt.exp(X[:, None] * np.array([1.0, 2.0])), axis=1)).sum(),
        np.array([-1e4, 900.0]),
        [1.0, 2.0],
    ),
    "log(erfc)": (2 * pt.log(pt.erfc(X)).sum(), AT_ERFC, 2 * SLOPE_OF_LOG_ERFC),
    "log(1 - erf)": (2 * pt.log(1 - pt.erf(X)).sum(), AT_ERFC, 2 * SLOPE_OF_LOG_ERFC),
    "log(1 - sigmoid)": (2 * pt.log(1 - pt.sigmoid(X)).sum(), NEAR_0, -2 * expit(NEAR_0)),
    "log1p(-sigmoid)": (2 * pt.log1p(-pt.sigmoid(X)).sum(), NEAR_0, -2 * expit(NEAR_0)),
    "log(1 - exp)": (
        2 * pt.log(1 - pt.exp(X)).sum(),
        np.array([-1e-13, -40.0]),
        2 / np.expm1(np.array([1e-13, 40.0])) * -1,
    ),
    "log(exp / sum(exp))": (
        2 * pt.log(pt.exp(X) / pt.exp(X).sum())[0],
        NEAR_0,
        [2 - 2 * softmax(NEAR_0)[0], -2 * softmax(NEAR_0)[1]],
    ),
    "a branch": (
        pt.switch(X > 0, pt.log(1 + pt.exp(X)), pt.log(pt.exp(X) + pt.exp(X - 1))).sum(),
        np.array([900.0, -1e4]),
        [1.0, 1.0],
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_and_tangent(name):
    out, at, slope = FUNCTIONS[name]
    f = jaxify([X], out, loops="native")
    np.testing.assert_allclose(jax.grad(f)(at), slope, rtol=1e-10)
    np.testing.assert_allclose(jax.jvp(f, (at,), (np.ones(2),))[1], np.sum(slope), rtol=1e-10)
    g = jaxify([X], out, backend=NATIVE)
    np.testing.assert_allclose(loopax.grad(g)(at), slope, rtol=1e-10)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "out",
    [
        2 * pt.log(pt.special.softmax(X))[0],
        (2 / (1 + pt.exp(-X))).sum(),
        2 * (pt.exp(X) / pt.exp(X)).sum(),
        2 * pt.log(pt.exp(X) * pt.exp(2 * X)).sum(),
    ],
)
def test_second_derivatives(out):
    f, in_jax = (jaxify([X], out, loops=loops) for loops in ("native", "xla"))
    hessian = jax.hessian(f)(NEAR_0)
    assert np.isfinite(hessian).all()
    np.testing.assert_allclose(hessian, jax.hessian(in_jax)(NEAR_0), atol=1e-12)


def test_in_a_loop():
    states = pytensor.scan(
        lambda r, a: pt.log(pt.exp(a) + pt.exp(a + r)) - 500.0,
        sequences=[X],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )
    f = jaxify([X], states[-1], loops="native")
    at = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(jax.grad(f)(at), expit(at), rtol=1e-12)
    np.testing.assert_allclose(
        jax.hessian(f)(at), np.diag(expit(at) * expit(-at)), rtol=1e-9, atol=1e-14
    )
