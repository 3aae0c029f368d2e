"""Integers and bools among floats in one op: no tangent and no cotangent of the floats is lost."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import NullTypeGradError

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE
from tests.support.compare import FAST_COMPILE
from tests.support.marking import slow_where

X, N = pt.dvector("x"), pt.lvector("n")
AT, COUNTS = np.array([0.5, 0.8, -0.3]), np.array([2, 1])
ALONG = np.array([1.0, -0.7, 0.4])
PARTS = {
    "integers in front": pt.concatenate([N, X]),
    "a constant behind": pt.concatenate([X, pt.constant([1, 2])]),
    "bools": pt.concatenate([X > 0.6, X]),
    "bools on both sides": pt.concatenate([X > 0.6, X, X < 0]),
    "rows": pt.stack([N[0] * pt.ones(3, dtype="int64"), X]),
    "columns": pt.stack([X, pt.arange(3)], axis=1),
    "numbers": pt.stack([X[0], 1, X[2], N[0], X[1] > 0]),
    "padding": pt.pad(X, 1, constant_values=3),
    "set slice": pt.set_subtensor(X[:2], N),
    "set number": pt.set_subtensor(X[0], 0),
    "set element": pt.set_subtensor(X[N[1]], N[0]),
    "add": pt.inc_subtensor(X[1:], N),
    "set by array": pt.set_subtensor(X[N], N),
    "add by array": pt.inc_subtensor(X[N], N),
    "set by mask": pt.set_subtensor(X[X > 0.6], 1),
    "set bools": pt.set_subtensor(X[1:], X[1:] > 0),
    "choice": pt.switch(X > 0, X, 1),
    "choice of bools": pt.switch(X > 0, X < 2, X),
    "branch": loopax.cond(
        N[0] > 1, lambda v: pt.concatenate([N, v]), lambda v: 2 * X[[0, 1, 2, 0, 1]], X
    ),
    "repeated": pt.repeat(pt.concatenate([N, X]), 2),
    "split": pt.split(pt.concatenate([N, X]), splits_size=[2, 3], n_splits=2)[1] * 2,
    "filled": pt.fill_diagonal(pt.outer(X, X), 1),
    "product": pt.dot(pt.arange(6).reshape((2, 3)), X),
    "sum": X + N[0] * (X > 0),
    "power": X ** N[0],
    "clip": pt.clip(X, 0, 1),
}


def cost(part):
    weights = pt.arange(1, part.size + 1).reshape(part.shape, ndim=part.type.ndim)
    return (pt.sin(1.3 * part) * weights).sum()


def in_a_loop(part):
    """The part in each step of a loop, and carried by it."""

    def step(carry, factor):
        inside = loopax.ir.replace.replaced([cost(part)], {X: X * factor})[0]
        return 0.5 * carry + pt.tanh(inside), None

    return loopax.scan(step, 0.0, pt.constant([1.0, 0.6]))[0]


CASES = {
    **{name: cost(part) for name, part in PARTS.items()},
    **{f"{name}, in a loop": in_a_loop(part) for name, part in PARTS.items()},
}


def differences(f, x, step=1e-5):
    """The Jacobian by central differences, a column for each element of ``x``."""
    return np.stack([(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(len(x))], -1)


QUICK_LOOPS = "integers in front", "set by array", "branch", "choice of bools"


def is_slow(name):
    return name.endswith(", in a loop") and name.partition(",")[0] not in QUICK_LOOPS


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", slow_where(is_slow, CASES))
def test_native_derivatives(name):
    """Forwards, backwards, and forwards over backwards, as PyTensor's value says by differences."""
    y = CASES[name]
    value = pytensor.function([X, N], [y], mode=FAST_COMPILE, on_unused_input="ignore")
    slope = differences(lambda x: value(x, COUNTS)[0], AT)
    f = jaxify([X, N], y, backend=NATIVE)
    gradient = loopax.grad(f)
    np.testing.assert_allclose(gradient(AT, COUNTS), slope, rtol=1e-5, atol=1e-7)
    _, pushed = loopax.jvp(f, (AT, COUNTS), (ALONG, None))
    np.testing.assert_allclose(pushed, slope @ ALONG, rtol=1e-5, atol=1e-7)
    curvature = differences(lambda x: gradient(x, COUNTS), AT)
    (product,) = loopax.hvp(f, (AT, COUNTS), (ALONG, None))
    np.testing.assert_allclose(product, curvature @ ALONG, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_kernels(name):
    """`jax.jvp` and `jax.hessian` of native code are those of JAX's operations."""
    y = CASES[name]
    native, xla = (jaxify([X, N], y, loops=loops) for loops in ("native", "xla"))
    for derive in (jax.hessian, jax.jacfwd, jax.grad):
        actual, expected = (derive(f)(AT, COUNTS) for f in (native, xla))
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("backend", [NATIVE, "jax"])
def test_an_op_without_a_derivative_that_no_result_depends_on(backend):
    """PyTensor has no derivative of a Bessel function by its order: here only an unread trace needs it."""
    n, x = pt.dscalar("n"), pt.dvector("x")
    unread = pt.kv(pt.abs(n) + 0.5, x[0])
    final, _ = loopax.scan(lambda c, r: (pt.tanh(c * r), unread), n, x)
    options = {"loops": "xla"} if backend == "jax" else {}
    f = jaxify([n, x], final**2, backend=backend, **options)
    point, along = (0.3, np.array([0.5, 2.0])), (1.0, np.array([0.2, 0.1]))
    value, slope = loopax.jvp(f, point, along)
    eps = 1e-6
    ends = [f(0.3 + s * eps, point[1] + s * eps * along[1]) for s in (1, -1)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * eps), rtol=1e-6)
    assert np.isfinite(loopax.hvp(f, point, along)[0])


def test_an_unknown_tangent_that_a_result_depends_on_is_an_error():
    n, x = pt.dscalar("n"), pt.dvector("x")
    f = jaxify([n, x], pt.tanh(pt.kv(n, x)).sum(), backend=NATIVE)
    with pytest.raises(NullTypeGradError, match="has no derivative"):
        loopax.jvp(f, (0.3, np.ones(2)), (1.0, np.ones(2)))
