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


def test_a_stack_of_sparse_matrices():
    """PyTensor itself has no gradient of one of integers."""
    blocks = [sparse.csc_from_dense(m) for m in (MATRIX, pt.diag(X))]
    cost = pt.sin(sparse.dense_from_sparse(sparse.vstack(blocks))).sum()
    arguments = [AT, INTEGERS[MATRIX]]
    f = jaxify([X, MATRIX], cost, backend=NATIVE)
    in_jax = jaxify([X, MATRIX], cost, loops="xla")
    np.testing.assert_allclose(f(*arguments), in_jax(*arguments))
    np.testing.assert_allclose(loopax.grad(f)(*arguments), jax.grad(in_jax)(*arguments))
