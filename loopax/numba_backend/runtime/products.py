"""Products of small matrices and vectors in memory, as loops; `blas` has those of large ones."""

from __future__ import annotations

import numpy as np

from loopax.base.compiling.pipeline import njit_inner

# Multiplications above which a call of BLAS, which itself takes 60 ns, is faster. In loops and by BLAS:
# 40 and 62 ns for 5 x 5 by 5 x 5, 64 and 60 for 6 x 6, 108 and 74 for 8 x 8; 26 and 86 for 16 x 16 by a
# vector, 83 and 142 for 32 x 32, 326 and 446 for 64 x 64.
LARGEST_PRODUCT, LARGEST_MATRIX = 216, 4096

# Terms in any order, as BLAS adds them, and in vector code: a sum in order waits for each addition.
_compiled = njit_inner(error_model="numpy", fastmath={"reassoc", "contract"})


@_compiled
def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Write ``a @ b`` to ``out``; transposes are views, whose layouts the compiler knows."""
    n, m = a.shape[1], b.shape[1]
    zero = out.dtype.type(0)
    for i in range(a.shape[0]):
        j = 0
        while j + 4 <= m:  # four columns in registers: each entry of a is loaded once for them
            t0, t1, t2, t3 = zero, zero, zero, zero
            for k in range(n):
                x = a[i, k]
                t0 += x * b[k, j]
                t1 += x * b[k, j + 1]
                t2 += x * b[k, j + 2]
                t3 += x * b[k, j + 3]
            out[i, j], out[i, j + 1], out[i, j + 2], out[i, j + 3] = t0, t1, t2, t3
            j += 4
        while j < m:
            t0 = zero
            for k in range(n):
                t0 += a[i, k] * b[k, j]
            out[i, j] = t0
            j += 1


@_compiled
def matvec(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write ``a @ x`` to ``out``.

    Four rows at a time, whose sums do not wait for one another: 64 x 64 in 0.33 us, in turn in 2.0.
    """
    m, n = a.shape
    zero = out.dtype.type(0)
    i = 0
    while i + 4 <= m:
        t0, t1, t2, t3 = zero, zero, zero, zero
        for k in range(n):
            y = x[k]
            t0 += a[i, k] * y
            t1 += a[i + 1, k] * y
            t2 += a[i + 2, k] * y
            t3 += a[i + 3, k] * y
        out[i], out[i + 1], out[i + 2], out[i + 3] = t0, t1, t2, t3
        i += 4
    while i < m:
        t0 = zero
        for k in range(n):
            t0 += a[i, k] * x[k]
        out[i] = t0
        i += 1


@_compiled
def transposed_matvec(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write ``a.T @ x`` to ``out``.

    Four rows of ``a`` at a time: 64 x 64 in 0.36 us, column by column in 0.93.
    """
    n, m = a.shape
    for i in range(m):
        out[i] = 0
    k = 0
    while k + 4 <= n:
        y0, y1, y2, y3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for i in range(m):
            out[i] += a[k, i] * y0 + a[k + 1, i] * y1 + (a[k + 2, i] * y2 + a[k + 3, i] * y3)
        k += 4
    while k < n:
        y0 = x[k]
        for i in range(m):
            out[i] += a[k, i] * y0
        k += 1


FUNCTIONS = {f.__name__: f for f in (matmul, matvec, transposed_matvec)}
