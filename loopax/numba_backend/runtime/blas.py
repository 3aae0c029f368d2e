"""Calls of BLAS for matrices and vectors in C order, or transposed, of lengths that fit, none of them zero.

For an ``np.dot`` with ``out`` Numba compiles four Python functions, which look at lengths, for each
layout of each operand: 0.2 s. Here a flag says at run time what is transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin

from loopax.base.upstream.numba import (
    CPUContext,
    Signature,
    call_xxgemm,
    call_xxgemv,
    cgutils,
    ensure_blas,
    ir,
    make_array,
)
from loopax.numba_backend.runtime.instructions import result_type

_MOST = 2**31 - 1  # BLAS counts in C's int


def matvec_by_blas(a: np.ndarray, x: np.ndarray, out: np.ndarray, is_transposed: bool) -> None:
    """Write ``a @ x``, or ``a.T @ x``, to ``out``."""
    out[...] = (a.T if is_transposed else a) @ x


def matmul_by_blas(
    a: np.ndarray, b: np.ndarray, out: np.ndarray, a_is_transposed: bool, b_is_transposed: bool
) -> None:
    """Write the product of ``a`` and ``b``, or of their transposes, to ``out``."""
    out[...] = (a.T if a_is_transposed else a) @ (b.T if b_is_transposed else b)


@result_type(matvec_by_blas)
def _type_of_matvec(a, x, out, is_transposed):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if _fits(a, x, out) else None


@result_type(matmul_by_blas)
def _type_of_matmul(a, b, out, a_is_transposed, b_is_transposed):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if _fits(a, b, out) else None


def _fits(*arrays: types.Array) -> bool:
    return all(t.layout == "C" and t.dtype == arrays[0].dtype for t in arrays)


@lower_builtin(matvec_by_blas, types.Array, types.Array, types.Array, types.Boolean)
def _matvec(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    matrix = signature.args[0]
    (a, shape), (x, _), (out, _) = _operands(context, builder, signature, args)

    def call(is_transposed: bool) -> None:
        # BLAS reads what is in C order as the transpose.
        do_transpose = not is_transposed
        call_xxgemv(context, builder, do_transpose, matrix, shape, a.data, x.data, out.data)

    _for_each_value(builder, args[3:], call)
    return context.get_dummy_value()


@lower_builtin(matmul_by_blas, types.Array, types.Array, types.Array, types.Boolean, types.Boolean)
def _matmul(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    (a, a_shape), (b, b_shape), (out, out_shape) = _operands(context, builder, signature, args)
    a_type, b_type, out_type, *_ = signature.args

    def call(a_is_transposed: bool, b_is_transposed: bool) -> None:
        x = _operand(a_type, a_shape, a.data, a_is_transposed)
        y = _operand(b_type, b_shape, b.data, b_is_transposed)
        call_xxgemm(context, builder, *x, *y, out_type, out_shape, out.data)

    _for_each_value(builder, args[3:], call)
    return context.get_dummy_value()


def _operands(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> list[tuple[Any, list[Any]]]:
    """Each array with its lengths, which are checked."""
    ensure_blas()
    operands = []
    for t, value in zip(signature.args[:3], args, strict=False):
        array = make_array(t)(context, builder, value)
        shape = cgutils.unpack_tuple(builder, array.shape)
        for n in shape:
            with cgutils.if_unlikely(builder, builder.icmp_signed(">", n, n.type(_MOST))):
                message = ("an array is too large for BLAS",)
                context.call_conv.return_user_exc(builder, OverflowError, message)
        operands.append((array, shape))
    return operands


def _operand(
    t: types.Array, shape: list[Any], data: ir.Value, is_transposed: bool
) -> tuple[Any, list[Any], Any]:
    return (t.copy(layout="F"), shape[::-1], data) if is_transposed else (t, shape, data)


def _for_each_value(
    builder: ir.IRBuilder, flags: Sequence[ir.Value], call: Callable[..., None], *values: bool
) -> None:
    """Emit ``call`` in a branch for each value of the flags."""
    if not flags:
        call(*values)
        return
    with builder.if_else(flags[0]) as (if_true, if_false):
        with if_true:
            _for_each_value(builder, flags[1:], call, *values, True)
        with if_false:
            _for_each_value(builder, flags[1:], call, *values, False)


FUNCTIONS = {f.__name__: f for f in (matmul_by_blas, matvec_by_blas)}
