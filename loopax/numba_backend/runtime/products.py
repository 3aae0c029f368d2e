"""Products of matrices and vectors in memory: loops where they are small, BLAS where they are large."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopax.base.compiling.pipeline import njit_inner

# Multiplications from which a call of BLAS is faster, which takes 60 ns itself. In loops and by BLAS:
# 61 and 66 ns for 5 x 5 by 5 x 5, 94 and 61 for 6 x 6, 390 and 117 for 9 x 9; 86 and 83 for 16 x 16 by a
# vector, 214 and 103 for 24 x 24.
_BLAS, _BLAS_OF_VECTOR = 128, 256


@njit_inner(error_model="numpy")
def matmul(a: Any, b: Any, out: Any) -> None:
    """``out[...] = a @ b`` of matrices."""
    if a.shape[0] * a.shape[1] * b.shape[1] > _BLAS:
        np.dot(a, b, out)
        return
    n, m = a.shape[1], b.shape[1]
    for i in range(a.shape[0]):
        for j in range(m):
            total = out.dtype.type(0)  # in a register: added up in memory it takes twice the time
            for k in range(n):
                total += a[i, k] * b[k, j]
            out[i, j] = total


@njit_inner(error_model="numpy")
def matvec(a: Any, x: Any, out: Any) -> None:
    """``out[...] = a @ x`` of a matrix and a vector."""
    if a.size > _BLAS_OF_VECTOR:
        np.dot(a, x, out)
        return
    n = a.shape[1]
    for i in range(a.shape[0]):
        total = out.dtype.type(0)
        for k in range(n):
            total += a[i, k] * x[k]
        out[i] = total


FUNCTIONS = {f.__name__: f for f in (matmul, matvec)}
