"""Products in memory: loops below a size and BLAS from there on, of arrays of any layout."""

import numba
import numpy as np
import pytest

from loopax.numba_backend.runtime.products import matmul, matvec

SIZES = [(0, 3, 2), (3, 0, 2), (1, 1, 1), (2, 3, 4), (5, 5, 5), (6, 6, 6), (9, 2, 9), (30, 1, 40)]


@numba.njit
def by_matmul(a, b, out):
    matmul(a, b, out)


@numba.njit
def by_matvec(a, x, out):
    matvec(a, x, out)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_sides_of_the_size_from_which_blas_is_called(dtype):
    rng, rtol = np.random.default_rng(0), 1e-5 if dtype == "float32" else 1e-13
    for rows, n, columns in SIZES:
        a, b = rng.normal(size=(rows, n)).astype(dtype), rng.normal(size=(n, columns)).astype(dtype)
        for x in (a, np.asfortranarray(a)):
            for y in (b, np.asfortranarray(b)):
                out = np.full((rows, columns), np.nan, dtype)
                by_matmul(x, y, out)
                np.testing.assert_allclose(out, a @ b, rtol=rtol, atol=rtol, strict=True)


@pytest.mark.parametrize("n", [0, 3, 15, 16, 17, 40])
def test_a_matrix_by_a_vector(n):
    rng = np.random.default_rng(1)
    a, x, out = rng.normal(size=(n, n)), rng.normal(size=n), np.full(n, np.nan)
    by_matvec(a, x, out)
    np.testing.assert_allclose(out, a @ x, rtol=1e-13, atol=1e-13)
