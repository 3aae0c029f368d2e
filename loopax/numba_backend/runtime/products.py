"""Products of matrices and vectors in memory: loops where they are small, BLAS where they are large."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopax.numba_backend.compiling.pipeline import njit_inner

_BLAS = 512  # multiplications: from here on a call of BLAS is faster than three loops


@njit_inner(error_model="numpy")
def matmul(a: Any, b: Any, out: Any) -> None:
    """``out[...] = a @ b`` of matrices."""
    if a.shape[0] * a.shape[1] * b.shape[1] > _BLAS:
        np.dot(a, b, out)
        return
    n, m = a.shape[1], b.shape[1]
    for i in range(a.shape[0]):
        for j in range(m):
            out[i, j] = 0.0
        for k in range(n):
            for j in range(m):
                out[i, j] += a[i, k] * b[k, j]


@njit_inner(error_model="numpy")
def matvec(a: Any, x: Any, out: Any) -> None:
    """``out[...] = a @ x`` of a matrix and a vector."""
    if a.size > _BLAS:
        np.dot(a, x, out)
        return
    n = a.shape[1]
    for i in range(a.shape[0]):
        total = out.dtype.type(0)
        for k in range(n):
            total += a[i, k] * x[k]
        out[i] = total


FUNCTIONS = {f.__name__: f for f in (matmul, matvec)}
