"""Triangular solves and Cholesky factors of large matrices, put back into their equations."""

import numba
import numpy as np
import pytest

from loopax.numba_backend.runtime import blas
from loopax.numba_backend.runtime import large_matrices as large

SIZES = [(0, 2), (1, 1), (32, 3), (33, 1), (33, 2), (64, 0), (65, 65), (100, 7)]
RTOL = {"float32": 2e-4, "float64": 1e-10}


@numba.njit
def factored(a, lower):
    return large.large_cholesky(a, lower)


@numba.njit
def solved(a, b, lower, unit):
    return large.large_triangular_solve(a, b, lower, unit)


@numba.njit
def solved_transposed(a, b, lower, unit):
    return large.large_transposed_solve(a, b, lower, unit)


@numba.njit
def subtracted(a, x, first, last, first_known, last_known, is_transposed):
    blas.subtract_product(a, x, first, last, first_known, last_known, is_transposed)


def positive(n, dtype):
    a = np.random.default_rng(n).normal(size=(n, n))
    return (a @ a.T / max(n, 1) + np.eye(n)).astype(dtype)


def of_one_triangle(a, lower):
    """``a`` with NaN in the triangle that nobody may read."""
    other = np.triu_indices(len(a), 1) if lower else np.tril_indices(len(a), -1)
    a = a.copy()
    a[other] = np.nan
    return a


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cholesky_factors(dtype, lower):
    for n, _ in SIZES:
        a = positive(n, dtype)
        factor = of_one_triangle(a, lower)
        assert factored(factor, lower)
        rebuilt = factor @ factor.T if lower else factor.T @ factor
        np.testing.assert_allclose(rebuilt, a, rtol=RTOL[dtype], atol=RTOL[dtype], strict=True)
        np.testing.assert_array_equal(factor, np.tril(factor) if lower else np.triu(factor))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [32, 33, 80])
@pytest.mark.parametrize("pivot", [0.0, -1.0, np.nan])
def test_matrices_that_are_not_positive_definite(n, lower, pivot):
    a = np.eye(n)
    a[n - 2, n - 2] = pivot
    is_definite = factored(a, lower)
    assert not is_definite or np.isnan(a).any()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_triangular_solves(dtype, lower, unit):
    for n, m in SIZES:
        a = positive(n, dtype) + np.eye(n, dtype=dtype)
        if unit:
            np.fill_diagonal(a, 1)
            a = a / 8 + np.eye(n, dtype=dtype) * 7 / 8
        b = np.random.default_rng(m).normal(size=(n, m)).astype(dtype)
        x = b.copy()
        assert solved(of_one_triangle(a, lower), x, lower, unit)
        triangle = np.tril(a) if lower else np.triu(a)
        np.testing.assert_allclose(triangle @ x, b, rtol=RTOL[dtype], atol=RTOL[dtype])
        x = b.copy()
        assert solved_transposed(of_one_triangle(a, lower), x, lower, unit)
        np.testing.assert_allclose(triangle.T @ x, b, rtol=RTOL[dtype], atol=RTOL[dtype])


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("n", [5, 70])
def test_a_zero_on_the_diagonal(n, m):
    a = np.eye(n)
    a[n // 2, n // 2] = 0
    for solve in (solved, solved_transposed):
        assert not solve(a, np.ones((n, m)), True, False)
        assert solve(a, np.ones((n, m)), True, True)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_calls_of_the_libraries_and_their_definitions(dtype, is_transposed):
    """What generated code does in Python is what it does compiled."""
    rng = np.random.default_rng(0)
    a, x = rng.normal(size=(9, 9)).astype(dtype), rng.normal(size=(9, 4)).astype(dtype)
    y = x.copy()
    rows = (5, 8, 1, 4, is_transposed)
    subtracted(a, x, *rows)
    blas.subtract_product(a, y, *rows)
    np.testing.assert_allclose(x, y, rtol=RTOL[dtype])
    a = positive(40, dtype)
    factor = a.copy()
    assert factored(factor, not is_transposed)
    assert blas.factor_by_lapack(a, not is_transposed)
    np.testing.assert_allclose(factor, a, rtol=RTOL[dtype], atol=RTOL[dtype])
    assert not blas.factor_by_lapack(-a, True)
