"""Products of small matrices and vectors in memory, as loops; large ones are in `blas`."""

from __future__ import annotations

import numpy as np

from loopax.base.compiling.pipeline import njit_inner
from loopax.numba_backend.runtime.instructions import hidden
from loopax.numba_backend.runtime.views import in_line

# Multiplications above which a call of BLAS, which itself takes 50 ns, is faster. In loops and by BLAS:
# 32 and 65 ns for 5 x 5 by 5 x 5, 49 and 70 for 6 x 6, 82 and 81 for 8 x 8, 177 and 127 for 10 x 10. By a
# vector, loops are as fast as BLAS on one core: 15 and 43 ns for 16 x 16, 0.33 and 0.55 us for 64 x 64, 5.8
# and 6.2 for 300 x 300, 50 and 55 for 800 x 800. From some 460,000 entries OpenBLAS 0.3 takes several
# threads, and half the time on two idle cores, but 16 ms where other processes keep them busy.
LARGEST_PRODUCT, LARGEST_MATRIX = 512, 400_000
# Up to these numbers of multiplications LLVM unrolls loops of known sizes. A product takes, in ns, with
# known sizes and without: 4 and 15 for 2 x 2 by 2 x 2, 8 and 24 for 3 x 3, 52 and 82 for 6 x 6, up to 124
# and 66 for 8 x 8; 5 and up to 17 for 3 x 3 by a vector, 16 and 14 for 8 x 8.
LARGEST_UNROLLED_PRODUCT, LARGEST_UNROLLED_MATRIX = 216, 36

# Terms in any order, as BLAS adds them, and in vector code: a sum in order waits for each addition.
_compiled = njit_inner(error_model="numpy", fastmath={"reassoc", "contract"})
_inlined = njit_inner(error_model="numpy", fastmath={"reassoc", "contract"}, forceinline=True)
_place = np.uintp


@_inlined
def _rolled(n: int) -> int:
    """The length ``n`` of an inner loop, hidden where LLVM would unroll the loop instead of vectorizing it.

    Of known size, a product of 20 x 20 by a vector took 164 ns, and takes 32; 10 x 10 takes 15 and not 21,
    24 x 24 takes 24 and not 41.
    """
    return hidden(n) if 10 < n < 24 else n


_ONE, _FOUR = _place(1), _place(4)


@_compiled
def matmul(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, a_is_transposed: bool, b_is_transposed: bool
) -> None:
    """Write the product of ``a`` and ``b``, or of their transposes, to ``out``.

    Elements are addressed by their places in memory: Numba would compile a function of views for each pair
    of layouts, 0.1 s each, but LLVM inlines one function with the flags of each call. Unsigned places are
    never counted from the end.
    """
    rows, m = _place(out.shape[0]), _place(out.shape[1])
    n = _place(a.shape[0] if a_is_transposed else a.shape[1])
    x, y, z = in_line(a), in_line(b), in_line(out)
    x_row, x_column = (_ONE, rows) if a_is_transposed else (n, _ONE)
    y_row, y_column = (_ONE, n) if b_is_transposed else (m, _ONE)
    zero = out.dtype.type(0)
    for i in range(rows):
        j = _place(0)
        while j + _FOUR <= m:  # four columns in registers: each entry of a is loaded once for them
            t0, t1, t2, t3 = zero, zero, zero, zero
            for k in range(n):
                factor = x[i * x_row + k * x_column]
                at = k * y_row + j * y_column
                t0 += factor * y[at]
                t1 += factor * y[at + y_column]
                t2 += factor * y[at + _place(2) * y_column]
                t3 += factor * y[at + _place(3) * y_column]
            at = i * m + j
            z[at], z[at + _ONE], z[at + _place(2)], z[at + _place(3)] = t0, t1, t2, t3
            j += _FOUR
        while j < m:
            t0 = zero
            for k in range(n):
                t0 += x[i * x_row + k * x_column] * y[k * y_row + j * y_column]
            z[i * m + j] = t0
            j += _ONE


@_inlined
def unrolled_matmul(
    a: np.ndarray,
    b: np.ndarray,
    out: np.ndarray,
    a_is_transposed: bool,
    b_is_transposed: bool,
    rows: int,
    n: int,
    columns: int,
) -> None:
    """Write a product, (rows, n) by (n, columns), to ``out``: `matmul` for literal sizes."""
    x, y, z = in_line(a), in_line(b), in_line(out)
    x_row, x_column = (1, rows) if a_is_transposed else (n, 1)
    y_row, y_column = (1, n) if b_is_transposed else (columns, 1)
    for i in range(rows):
        for j in range(columns):
            total = out.dtype.type(0)
            for k in range(n):
                at, other = i * x_row + k * x_column, k * y_row + j * y_column
                total += x[_place(at)] * y[_place(other)]
            z[_place(i * columns + j)] = total


@_inlined
def unrolled_matvec(
    a: np.ndarray, x: np.ndarray, out: np.ndarray, a_is_transposed: bool, rows: int, n: int
) -> None:
    """Write a product, (rows, n) by (n,), to ``out``: `matvec` for literal sizes."""
    y = in_line(a)
    y_row, y_column = (1, rows) if a_is_transposed else (n, 1)
    for i in range(rows):
        total = out.dtype.type(0)
        for k in range(n):
            total += y[_place(i * y_row + k * y_column)] * x[_place(k)]
        out[_place(i)] = total


@_compiled
def matvec(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write ``a @ x`` to ``out``.

    It takes four rows at a time, whose sums are independent: 64 x 64 in 0.33 us, one after the other in
    2.0.
    """
    m, n = a.shape[0], _rolled(a.shape[1])
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

    It takes four rows of ``a`` at a time: 64 x 64 in 0.36 us, column by column in 0.93.
    """
    n, m = a.shape[0], _rolled(a.shape[1])
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


FUNCTIONS = {
    f.__name__: f for f in (matmul, unrolled_matmul, matvec, unrolled_matvec, transposed_matvec)
}
