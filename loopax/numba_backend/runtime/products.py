"""Products of matrices and vectors in memory: loops for small ones, BLAS for large ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin, type_callable

from loopax.base.compiling.pipeline import njit_inner
from loopax.base.upstream.numba import (
    call_xxgemv,
    cgutils,
    ensure_blas,
    make_array,
)

# Multiplications above which a call of BLAS, which itself takes 60 ns, is faster. In loops and by BLAS:
# 61 and 66 ns for 5 x 5 by 5 x 5, 94 and 61 for 6 x 6, 390 and 117 for 9 x 9; 86 and 83 for 16 x 16 by
# a vector, 214 and 103 for 24 x 24.
_BLAS, _BLAS_OF_VECTOR = 128, 256
_MOST = 2**31 - 1


@njit_inner(error_model="numpy")
def matmul(a: Any, b: Any, out: Any) -> None:
    """``out[...] = a @ b`` of matrices."""
    if a.shape[0] * a.shape[1] * b.shape[1] > _BLAS:
        np.dot(a, b, out)
        return
    n, m = a.shape[1], b.shape[1]
    for i in range(a.shape[0]):
        for j in range(m):
            total = out.dtype.type(0)  # in a register: a sum in memory takes twice the time
            for k in range(n):
                total += a[i, k] * b[k, j]
            out[i, j] = total


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


@njit_inner(error_model="numpy")
def matvec(a: Any, x: Any, out: Any) -> None:
    """``out[...] = a @ x`` of a matrix and a vector."""
    if a.size > _BLAS_OF_VECTOR:
        by_blas(a, x, out)
        return
    n = a.shape[1]
    for i in range(a.shape[0]):
        total = out.dtype.type(0)
        for k in range(n):
            total += a[i, k] * x[k]
        out[i] = total


FUNCTIONS = {f.__name__: f for f in (matmul, matvec)}
