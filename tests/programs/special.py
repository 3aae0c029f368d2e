"""Special functions, and expressions that only a rewrite keeps from overflowing."""

import numpy as np
import pytensor.tensor as pt
import scipy.special
from scipy.special import expit

from .record import program

P = np.array([0.3, 1.0, 2.5, 7.0])
U = np.array([0.1, 0.4, 0.6, 0.95])
BIG = np.array([-800.0, 0.5, 900.0])


@program(P, thread="pytensor 498", grad_wrt=("p",), grad_rtol=1e-7)
def gamma_family():
    p = pt.vector("p")
    return [p], [pt.gammaln(p), pt.psi(p), pt.tri_gamma(p), pt.gamma(p)]


@program(P, P + 1.0, U, thread="jax 38610", grad_wrt=("x",), grad_rtol=1e-6)
def incomplete_beta():
    a, b, x = pt.vector("a"), pt.vector("b"), pt.vector("x")
    return [a, b, x], pt.betainc(a, b, x)


@program(P, P + 1.0, U, thread="jax 38610", rtol=1e-7)
def gradient_of_incomplete_beta():
    """After a and b too, which jax.grad refuses."""
    a, b, x = pt.vector("a"), pt.vector("b"), pt.vector("x")
    return [a, b, x], pt.grad(pt.betainc(a, b, x).sum(), [a, b, x])


@program(P, U, thread="pytensor 502", grad_wrt=("x",), rtol=1e-8, grad_rtol=1e-6)
def incomplete_gamma():
    k, x = pt.vector("k"), pt.vector("x")
    return [k, x], [pt.gammainc(k, x), pt.gammaincc(k, x)]


@program(P, U, thread="pytensor 502", rtol=1e-6)
def gradient_of_incomplete_gamma():
    k, x = pt.vector("k"), pt.vector("x")
    return [k, x], pt.grad(pt.gammainc(k, x).sum(), [k, x])


@program(U, thread="pytensor 256", grad_wrt=("u",), grad_rtol=1e-7)
def error_functions():
    u = pt.vector("u")
    return [u], [pt.erf(u), pt.erfc(u), pt.erfinv(u), pt.erfcinv(u), pt.erfcx(u)]


@program(U, thread="pytensor 256", grad_wrt=("u",), rtol=1e-7, grad_rtol=1e-6)
def bessel_functions():
    u = pt.vector("u")
    return [u], [pt.i0(u), pt.i1(u), pt.ive(0.5, u)]


@program(U, thread="pytensor 256", rtol=1e-7)
def bessel_functions_of_the_first_kind():
    u = pt.vector("u")
    return [u], [pt.j0(u), pt.j1(u), pt.kve(1.5, u)]


@program(U, thread="aesara 46", grad_wrt=("u",))
def elementary():
    u = pt.vector("u")
    return [u], [
        pt.sigmoid(u),
        pt.softplus(u),
        pt.log1mexp(-u),
        pt.log1p(u),
        pt.expm1(u),
        pt.arctan2(u, 1.0 - u),
        pt.arcsinh(u),
        pt.deg2rad(u),
        pt.log(u / (1.0 - u)),
    ]


# FAST_COMPILE has no stabilizing rewrites, so these say themselves what is right.


@program(
    BIG,
    thread="aesara 46",
    grad_wrt=("x",),
    expected=scipy.special.logsumexp,
    expected_grads=lambda w, x: w[0] * scipy.special.softmax(x),
)
def log_of_a_sum_of_exponentials():
    """Written out: overflows unless it is rewritten."""
    x = pt.vector("x")
    return [x], pt.log(pt.sum(pt.exp(x)))


@program(
    BIG,
    thread="aesara 46",
    grad_wrt=("x",),
    expected=lambda x: [-np.logaddexp(0, -x), -np.logaddexp(0, x), np.logaddexp(0, x)],
    expected_grads=lambda w, x: w[0] * expit(-x) + (w[2] - w[1]) * expit(x),
)
def log_of_sigmoid_written_out():
    x = pt.vector("x")
    return [x], [pt.log(pt.sigmoid(x)), pt.log(1.0 - pt.sigmoid(x)), pt.log(1.0 + pt.exp(x))]


@program(
    BIG,
    thread="aesara 343",
    expected=lambda x: [
        scipy.special.softmax(x),
        scipy.special.log_softmax(x),
        scipy.special.log_softmax(x),
        scipy.special.logsumexp(x),
    ],
)
def softmax_and_its_log():
    x = pt.vector("x")
    soft = pt.special.softmax(x, axis=-1)
    return [x], [soft, pt.special.log_softmax(x, axis=-1), pt.log(soft), pt.logsumexp(x)]


@program(BIG / 800.0, [0, 2, 1], thread="aesara 343", grad_wrt=("x",))
def cross_entropy():
    x, y = pt.vector("x"), pt.lvector("y")
    logits = pt.outer(x, pt.arange(3.0))
    return [x, y], -pt.special.log_softmax(logits, axis=1)[pt.arange(y.shape[0]), y].mean()
