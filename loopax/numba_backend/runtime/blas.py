"""Calls of BLAS and LAPACK for arrays in C order, or transposed, of lengths that fit, none of them zero.

For an ``np.dot`` with ``out`` Numba compiles four Python functions, which check lengths, for each layout of
each operand: 0.2 s. Here a flag tells at run time which operands are transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin

from loopax.base.compiling.array_values import array_field
from loopax.base.upstream.numba import (
    CPUContext,
    Signature,
    call_xxgemm,
    call_xxgemv,
    cgutils,
    ensure_blas,
    ensure_lapack,
    get_blas_kind,
    ir,
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


def subtract_product(
    a: np.ndarray,
    x: np.ndarray,
    first: int,
    last: int,
    first_known: int,
    last_known: int,
    is_transposed: bool,
) -> None:
    """Subtract rows of ``a``, or of ``a.T``, times known rows of ``x`` from rows of ``x``."""
    matrix = a.T if is_transposed else a
    x[first:last] -= matrix[first:last, first_known:last_known] @ x[first_known:last_known]


def factor_by_lapack(a: np.ndarray, lower: bool) -> bool:
    """Write the Cholesky factor to one triangle of ``a``; whether the matrix is positive definite."""
    try:
        factor = np.linalg.cholesky(a if lower else a.T)
    except np.linalg.LinAlgError:
        return False
    a[...] = factor if lower else factor.T
    return True


@result_type(matvec_by_blas)
def _type_of_matvec(a, x, out, is_transposed):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if _fits(a, x, out) else None


@result_type(matmul_by_blas)
def _type_of_matmul(a, b, out, a_is_transposed, b_is_transposed):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if _fits(a, b, out) else None


@result_type(subtract_product)
def _type_of_subtraction(a, x, first, last, first_known, last_known, is_transposed):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if _fits(a, x) else None


@result_type(factor_by_lapack)
def _type_of_factor(a, lower):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.boolean if _fits(a) else None


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
        call_xxgemv(context, builder, do_transpose, matrix, shape, a, x, out)

    _for_each_value(builder, args[3:], call)
    return context.get_dummy_value()


@lower_builtin(matmul_by_blas, types.Array, types.Array, types.Array, types.Boolean, types.Boolean)
def _matmul(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    (a, a_shape), (b, b_shape), (out, out_shape) = _operands(context, builder, signature, args)
    a_type, b_type, out_type, *_ = signature.args

    def call(a_is_transposed: bool, b_is_transposed: bool) -> None:
        x = _operand(a_type, a_shape, a, a_is_transposed)
        y = _operand(b_type, b_shape, b, b_is_transposed)
        call_xxgemm(context, builder, *x, *y, out_type, out_shape, out)

    _for_each_value(builder, args[3:], call)
    return context.get_dummy_value()


@lower_builtin(subtract_product, types.Array, types.Array, *[types.Integer] * 4, types.Boolean)
def _subtract_product(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    (a, (_, n)), (x, (_, m)) = _operands(context, builder, signature, args)
    a_type, _, *index_types = signature.args[:-1]
    first, last, first_known, last_known = (
        context.cast(builder, v, t, types.intp) for v, t in zip(args[2:], index_types, strict=False)
    )
    rows, known = builder.sub(last, first), builder.sub(last_known, first_known)
    number = context.get_value_type(a_type.dtype)
    minus_one, one = (
        cgutils.alloca_once_value(builder, ir.Constant(number, c)) for c in (-1.0, 1.0)
    )

    def element(data: ir.Value, n: ir.Value, i: ir.Value, j: ir.Value) -> Any:
        return builder.gep(data, [builder.add(builder.mul(i, n), j)])

    # BLAS reads what is in C order as the transpose: x.T -= x.T @ a.T, of the rows of each.
    i = builder.select(args[-1], first_known, first)
    j = builder.select(args[-1], first, first_known)
    kind, as_it_is, transposed = (_char(c) for c in (get_blas_kind(a_type.dtype), "n", "t"))
    operands = [
        *(kind, as_it_is, builder.select(args[-1], transposed, as_it_is)),
        *(m, rows, known),
        minus_one,
        *(element(x, m, first_known, first.type(0)), m),
        *(element(a, n, i, j), n),
        one,
        *(element(x, m, first, first.type(0)), m),
    ]
    _call(builder, "numba_xxgemm", operands)
    return context.get_dummy_value()


@lower_builtin(factor_by_lapack, types.Array, types.Boolean)
def _factor_by_lapack(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    ensure_lapack()
    ((array, (n, _)),) = _operands(context, builder, signature, args)
    # Of the transpose, which LAPACK reads, the lower triangle is the upper one.
    triangle = builder.select(args[1], _char("U"), _char("L"))
    kind = _char(get_blas_kind(signature.args[0].dtype))
    info = _call(builder, "numba_xxpotrf", [kind, triangle, n, array, n])
    return builder.icmp_signed("==", info, info.type(0))


def _char(letter: str) -> Any:
    return ir.Constant(ir.IntType(8), ord(letter))


def _call(builder: ir.IRBuilder, name: str, operands: Sequence[ir.Value]) -> Any:
    """Call a function of Numba's that takes chars, lengths and addresses, and returns a C int."""
    address = ir.IntType(8).as_pointer()
    operands = [
        builder.bitcast(v, address) if isinstance(v.type, ir.PointerType) else v for v in operands
    ]
    declared = ir.FunctionType(ir.IntType(32), [v.type for v in operands])
    return builder.call(cgutils.get_or_insert_function(builder.module, declared, name), operands)


def _operands(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> list[tuple[Any, list[Any]]]:
    """The data and lengths of each array, after a check of the lengths."""
    ensure_blas()
    operands = []
    arrays = [
        (t, v) for t, v in zip(signature.args, args, strict=True) if isinstance(t, types.Array)
    ]
    for t, value in arrays:
        shape = cgutils.unpack_tuple(builder, array_field(context, builder, t, value, "shape"))
        for n in shape:
            with cgutils.if_unlikely(builder, builder.icmp_signed(">", n, n.type(_MOST))):
                message = ("an array is too large for BLAS",)
                context.call_conv.return_user_exc(builder, OverflowError, message)
        operands.append((array_field(context, builder, t, value, "data"), shape))
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
