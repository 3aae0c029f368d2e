"""Products in memory: loops for small matrices and BLAS for large ones, of each or its transpose."""

import numba
import numpy as np
import pytest

from loopax.numba_backend.runtime import products
from loopax.numba_backend.runtime.blas import matmul_by_blas, matvec_by_blas
from loopax.numba_backend.runtime.products import (
    matmul,
    matvec,
    transposed_matvec,
    unrolled_matmul,
    unrolled_matvec,
)

SIZES = [(0, 3, 2), (3, 0, 2), (1, 1, 1), (2, 3, 4), (5, 5, 5), (6, 6, 6), (9, 2, 9), (30, 1, 40)]


@numba.njit
def in_loops(a, b, out, a_is_transposed, b_is_transposed):
    matmul(a, b, out, a_is_transposed, b_is_transposed)


@numba.njit
def unrolled(a, b, out, a_is_transposed, b_is_transposed):
    n = a.shape[0] if a_is_transposed else a.shape[1]
    rows, columns = out.shape
    unrolled_matmul(a, b, out, a_is_transposed, b_is_transposed, rows, n, columns)


@numba.njit
def by_blas(a, b, out, a_is_transposed, b_is_transposed):
    matmul_by_blas(a, b, out, a_is_transposed, b_is_transposed)


@numba.njit
def vector_in_loops(a, x, out, is_transposed):
    if is_transposed:
        transposed_matvec(a, x, out)
    else:
        matvec(a, x, out)


@numba.njit
def vector_unrolled(a, x, out, is_transposed):
    unrolled_matvec(a, x, out, is_transposed, out.size, x.size)


@numba.njit
def vector_by_blas(a, x, out, is_transposed):
    matvec_by_blas(a, x, out, is_transposed)


def draws(shape, is_transposed, dtype="float64"):
    """An array in C order of this shape, or of the transposed one."""
    shape = shape[::-1] if is_transposed else shape
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def as_is(a, is_transposed):
    return a.T if is_transposed else a


@pytest.mark.sampled(1)
@pytest.mark.parametrize("b_is_transposed", [False, True])
@pytest.mark.parametrize("a_is_transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices(dtype, a_is_transposed, b_is_transposed):
    rtol = 1e-5 if dtype == "float32" else 1e-13
    for rows, n, columns in SIZES:
        a, b = draws((rows, n), a_is_transposed, dtype), draws((n, columns), b_is_transposed, dtype)
        x, y = as_is(a, a_is_transposed), as_is(b, b_is_transposed)
        for product in in_loops, unrolled:
            out = np.full((rows, columns), np.nan, dtype)
            product(a, b, out, a_is_transposed, b_is_transposed)
            np.testing.assert_allclose(out, x @ y, rtol=rtol, atol=rtol, strict=True)
        if 0 not in (rows, n, columns):
            out[:] = np.nan
            by_blas(a, b, out, a_is_transposed, b_is_transposed)
            np.testing.assert_allclose(out, x @ y, rtol=rtol, atol=rtol, strict=True)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 5), (3, 3), (15, 17), (17, 15), (40, 40)])
def test_a_matrix_by_a_vector(shape, is_transposed):
    a = draws(shape, is_transposed)
    x = draws(shape[1:], False)
    product = as_is(a, is_transposed) @ x
    for write in vector_in_loops, vector_unrolled:
        out = np.full(shape[0], np.nan)
        write(a, x, out, is_transposed)
        np.testing.assert_allclose(out, product, rtol=1e-13, atol=1e-13)
    if 0 not in shape:
        out[:] = np.nan
        vector_by_blas(a, x, out, is_transposed)
        np.testing.assert_allclose(out, product, rtol=1e-13, atol=1e-13)


def test_lengths_that_llvm_would_unroll_are_hidden(monkeypatch):
    """In both products of a matrix and a vector, which are scalar code otherwise."""
    lengths = []
    monkeypatch.setattr(products, "hidden", lambda n: lengths.append(n) or n)
    assert [products._rolled.py_func(n) for n in range(40)] == list(range(40))
    assert lengths == list(range(11, 24))
    for product in matvec, transposed_matvec:
        assert "_rolled" in product.py_func.__code__.co_names
