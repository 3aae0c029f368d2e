"""Products of matrices and vectors in memory: loops for small ones, BLAS for large ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin, type_callable

from loopax.base.compiling.pipeline import njit_inner
from loopax.base.upstream.numba import call_xxgemv, cgutils, ensure_blas, make_array

# Multiplications above which a call of BLAS, which itself takes 60 ns, is faster. In loops and by BLAS:
# 40 and 62 ns for 5 x 5 by 5 x 5, 64 and 60 for 6 x 6, 108 and 74 for 8 x 8; 26 and 86 for 16 x 16 by a
# vector, 83 and 142 for 32 x 32, 326 and 446 for 64 x 64.
_BLAS, _BLAS_OF_VECTOR = 216, 4096
_MOST = 2**31 - 1

# Terms in any order, as BLAS adds them, and in vector code: a sum in order waits for each addition.
_IN_ANY_ORDER = {"reassoc", "contract"}


@njit_inner(error_model="numpy", fastmath=_IN_ANY_ORDER)
def matmul(a: Any, b: Any, out: Any) -> None:
    if a.shape[0] * a.shape[1] * b.shape[1] > _BLAS:
        np.dot(a, b, out)
        return
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


def by_blas(a: Any, x: Any, out: Any) -> None:
    """``np.dot(a, x, out)`` of a matrix and a vector of lengths that fit, none of them zero.

    Numba compiles four Python functions for an ``np.dot`` with ``out``, which look at lengths: 0.2 s.
    """
    np.dot(a, x, out)


@type_callable(by_blas)
def _of_by_blas(context):  # type: ignore[no-untyped-def]  # Numba reads the signature of what follows
    def result(a, x, out):  # type: ignore[no-untyped-def]
        fits = a.layout in "CF" and x.layout in "CF" and out.layout in "CF"
        return types.none if fits and a.dtype == x.dtype == out.dtype else None

    return result


@lower_builtin(by_blas, types.Array, types.Array, types.Array)
def _called(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    ensure_blas()
    a, x, out = (
        make_array(t)(context, builder, value)
        for t, value in zip(signature.args, args, strict=True)
    )
    shape = cgutils.unpack_tuple(builder, a.shape)
    for n in shape:  # BLAS counts in C's int
        with cgutils.if_unlikely(builder, builder.icmp_signed(">", n, n.type(_MOST))):
            context.call_conv.return_user_exc(
                builder, OverflowError, ("an array is too large for BLAS",)
            )
    matrix = signature.args[0]
    call_xxgemv(context, builder, matrix.layout == "C", matrix, shape, a.data, x.data, out.data)
    return context.get_dummy_value()


@njit_inner(error_model="numpy", fastmath=_IN_ANY_ORDER)
def matvec(a: Any, x: Any, out: Any) -> None:
    if a.size > _BLAS_OF_VECTOR:
        by_blas(a, x, out)
    elif a.strides[0] < a.strides[1]:
        _by_columns(a, x, out)
    else:
        _by_rows(a, x, out)


@njit_inner(error_model="numpy", fastmath=_IN_ANY_ORDER)
def _by_rows(a: Any, x: Any, out: Any) -> None:
    """Four rows at a time, whose sums do not wait for one another: 64 x 64 in 0.33 us, in turn in 2.0."""
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


@njit_inner(error_model="numpy", fastmath=_IN_ANY_ORDER)
def _by_columns(a: Any, x: Any, out: Any) -> None:
    """Four columns at a time, each in memory as one: 64 x 64 in 0.36 us, by rows in 0.93."""
    m, n = a.shape
    for i in range(m):
        out[i] = 0
    k = 0
    while k + 4 <= n:
        y0, y1, y2, y3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for i in range(m):
            out[i] += a[i, k] * y0 + a[i, k + 1] * y1 + (a[i, k + 2] * y2 + a[i, k + 3] * y3)
        k += 4
    while k < n:
        y0 = x[k]
        for i in range(m):
            out[i] += a[i, k] * y0
        k += 1


FUNCTIONS = {f.__name__: f for f in (matmul, matvec)}
