"""Linear algebra and convolutions of integers in native code: values, first and second derivatives."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import sparse
from pytensor.tensor import linalg

import loopax
from loopax import jaxify
from tests.support.both_backends import NATIVE

X = pt.dvector("x")
MATRIX, KERNEL, FLAGS = pt.lmatrix("matrix"), pt.ivector("kernel"), pt.bmatrix("flags")
AT = np.array([1.5, 0.5])
INTEGERS = {MATRIX: np.array([[3, 1], [1, 2]]), KERNEL: np.array([2, 3], "int32")}
INTEGERS[FLAGS] = np.array([[1, 0], [1, 1]], "int8")
PROGRAMS = {
    "solve": (linalg.solve(MATRIX, X, b_ndim=1), MATRIX),
    "solve, positive": (linalg.solve(MATRIX, X, assume_a="pos", b_ndim=1), MATRIX),
    "solve, triangular": (linalg.solve_triangular(FLAGS, X, lower=True, b_ndim=1), FLAGS),
    "cho_solve": (linalg.cho_solve((FLAGS, True), X, b_ndim=1), FLAGS),
    "integers behind": (linalg.solve(pt.diag(X), KERNEL, b_ndim=1), KERNEL),
    "det": (linalg.det(MATRIX) * X, MATRIX),
    "inv": (linalg.inv(MATRIX) @ X, MATRIX),
    "cholesky": (linalg.cholesky(MATRIX) @ X, MATRIX),
    "eigh": (linalg.eigh(MATRIX)[0] * X, MATRIX),
    "convolution": (pt.signal.convolve1d(KERNEL, X, mode="full"), KERNEL),
    "product": (MATRIX @ X, MATRIX),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_native(name):
    result, integers = PROGRAMS[name]
    cost, inputs = pt.sin(result).sum(), [X, integers]
    arguments = [AT, INTEGERS[integers]]
    in_jax = jaxify(inputs, cost, loops="xla")
    f = jaxify(inputs, cost, backend=NATIVE)
    np.testing.assert_allclose(f(*arguments), in_jax(*arguments))
    slope = jax.grad(in_jax)(*arguments)
    np.testing.assert_allclose(loopax.grad(f)(*arguments), slope)
    transpiled = jaxify(inputs, pytensor.grad(cost, X), backend=NATIVE)
    np.testing.assert_allclose(transpiled(*arguments), slope)
    curvature = jax.hessian(in_jax)(*arguments)
    np.testing.assert_allclose(loopax.hessian(f)(*arguments), curvature, atol=1e-12)


@pytest.mark.slow
def test_a_stack_of_sparse_matrices():
    """PyTensor itself has no gradient of one of integers."""
    blocks = [sparse.csc_from_dense(m) for m in (MATRIX, pt.diag(X))]
    cost = pt.sin(sparse.dense_from_sparse(sparse.vstack(blocks))).sum()
    arguments = [AT, INTEGERS[MATRIX]]
    f = jaxify([X, MATRIX], cost, backend=NATIVE)
    in_jax = jaxify([X, MATRIX], cost, loops="xla")
    np.testing.assert_allclose(f(*arguments), in_jax(*arguments))
    np.testing.assert_allclose(loopax.grad(f)(*arguments), jax.grad(in_jax)(*arguments))


S = pt.dscalar("s")
# An operation on a number and an integer of few bits, in which its derivative does not fit.
NARROW = {
    "arctan2(uint8, x)": (lambda i: pt.arctan2(i, S), "uint8", 1, 1.3),
    "arctan2(x, int8)": (lambda i: pt.arctan2(S, i), "int8", 100, 0.7),
    "arctan2(x, int32)": (lambda i: pt.arctan2(S, i), "int32", 70000, 0.7),
    "arctan2(x, float32)": (lambda i: pt.arctan2(S, i), "float32", 0.1, 0.7),
    "x**int8": (lambda i: S**i, "int8", -128, 1.1),
    "x**float32": (lambda i: S**i, "float32", 16777220, 1 + 1e-7),
    "uint8**x": (lambda i: i**S, "uint8", 200, 1.5),
    "owens_t(int8, x)": (lambda i: pt.owens_t(i, S), "int8", 127, 0.7),
    "polygamma(int8, x)": (lambda i: pt.polygamma(i, S), "int8", 127, 2.7),
    "betainc(int8, int8, x)": (lambda i: pt.betainc(i, i, S), "int8", 100, 0.5),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NARROW)
def test_a_narrow_operand(name):
    function, dtype, value, at = NARROW[name]
    value = np.dtype(dtype).type(value)
    i = pt.tensor("i", dtype=dtype, shape=())
    wide = pt.constant(np.int64(value) if value.dtype.kind in "iu" else np.float64(value))
    in_jax = jaxify([S], function(wide), loops="xla")
    slope, curvature = jax.grad(in_jax)(at), jax.grad(jax.grad(in_jax))(at)
    for loops in ("xla", "native"):
        f = jaxify([S, i], function(i), loops=loops)
        np.testing.assert_allclose(jax.grad(f)(at, value), slope, rtol=1e-10)
        np.testing.assert_allclose(jax.jacfwd(f)(at, value), slope, rtol=1e-10)
        np.testing.assert_allclose(jax.grad(jax.grad(f))(at, value), curvature, rtol=1e-9)
    f = jaxify([S, i], function(i), backend=NATIVE)
    np.testing.assert_allclose(loopax.grad(f)(at, value), slope, rtol=1e-10)
    if "**int8" not in name:  # PyTensor's rewrite of the power -128 prints an error (3.3.8)
        f = jaxify([S], function(pt.constant(value)), loops="native")
        np.testing.assert_allclose(jax.grad(f)(at), slope, rtol=1e-10)
