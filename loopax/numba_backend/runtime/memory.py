"""Uninitialised arrays, and copies of elements from one array to another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import lower_builtin

from loopax.base.compiling.array_values import array_field, array_value
from loopax.base.upstream.numba import CPUContext, Signature, cgutils, ir
from loopax.numba_backend.runtime.instructions import result_type


def empty(shape: Sequence[int], dtype: type) -> Any:
    """Allocate ``np.empty(shape, dtype)``, as instructions inlined into the caller.

    Numba compiles three Python functions for each number of axes and each dtype of an ``np.empty``: 0.1 to
    0.2 s, a fifth of what the native code of a small model takes.
    """
    return np.empty(shape, dtype)


@result_type(empty, reads_literals=True)
def _of_empty(shape, dtype):  # type: ignore[no-untyped-def]  # Numba reads the signature
    lengths_are_int = isinstance(shape, types.BaseTuple) and all(
        isinstance(n, types.Integer) for n in shape.types
    )
    known = isinstance(dtype, types.NumberClass) and lengths_are_int
    return types.Array(dtype.dtype, len(shape.types), "C") if known else None


@lower_builtin(empty, types.BaseTuple, types.NumberClass)
def _allocated(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    kind, lengths = signature.return_type, cgutils.unpack_tuple(builder, args[0])
    intp = context.get_value_type(types.intp)
    shape = [
        ir.Constant(intp, t.literal_value)
        if isinstance(t, types.IntegerLiteral)
        else context.cast(builder, n, t, types.intp)
        for n, t in zip(lengths, signature.args[0].types, strict=True)
    ]
    itemsize = ir.Constant(intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for n in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], n))
    size = _size(context, builder, itemsize, shape)
    align = ir.Constant(ir.IntType(32), context.get_preferred_array_alignment(kind.dtype))
    meminfo = context.nrt.meminfo_alloc_aligned(builder, size, align)
    element = ir.PointerType(context.get_data_type(kind.dtype))
    data = builder.bitcast(context.nrt.meminfo_data(builder, meminfo), element)
    return array_value(context, builder, kind, data, shape, strides[: kind.ndim], meminfo)


def on_stack(shape: Sequence[int], dtype: type) -> Any:
    """Allocate ``np.empty(shape, dtype)`` on the caller's stack, at one address for all runs.

    LLVM keeps its elements in registers if all indices are known. Numba counts references to the memory of
    any other array, and each view changes the count.

    Parameters
    ----------
    shape
        Literals.
    """
    return np.empty(shape, dtype)


@result_type(on_stack, reads_literals=True)
def _of_on_stack(shape, dtype):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.Array(dtype.dtype, len(shape.types), "C")


@lower_builtin(on_stack, types.BaseTuple, types.NumberClass)
def _placed(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    kind, lengths = signature.return_type, [t.literal_value for t in signature.args[0].types]
    intp, element = context.get_value_type(types.intp), context.get_data_type(kind.dtype)
    n_elements = ir.Constant(intp, math.prod(lengths))
    data = cgutils.alloca_once(builder, element, n_elements)
    data.align = context.get_preferred_array_alignment(kind.dtype)
    itemsize = context.get_abi_sizeof(element)
    strides = [itemsize * math.prod(lengths[k + 1 :]) for k in range(kind.ndim)]
    return array_value(context, builder, kind, data, [*map(intp, lengths)], [*map(intp, strides)])


def _size(
    context: CPUContext, builder: ir.IRBuilder, itemsize: ir.Value, shape: Sequence[ir.Value]
) -> Any:
    """Bytes of an array. Lengths below zero, and too many bytes, are NumPy's errors."""
    if all(isinstance(n, ir.Constant) for n in shape):
        n_bytes = math.prod([itemsize.constant, *(n.constant for n in shape)])
        if all(n.constant >= 0 for n in shape) and n_bytes < 2**62:
            return itemsize.type(n_bytes)  # two checks and their errors take 2 ms to compile
    bit = ir.IntType(1)
    negative, too_big, total = bit(0), bit(0), itemsize
    for n in shape:
        negative = builder.or_(negative, builder.icmp_signed("<", n, n.type(0)))
        product = builder.smul_with_overflow(total, n)
        total = builder.extract_value(product, 0)
        too_big = builder.or_(too_big, builder.extract_value(product, 1))
    for wrong, message in (
        (negative, "negative dimensions are not allowed"),
        (too_big, "array is too big: it has more bytes than there are addresses"),
    ):
        with cgutils.if_unlikely(builder, wrong):
            context.call_conv.return_user_exc(builder, ValueError, (message,))
    return total


def copy_run(
    target: np.ndarray, start: int, source: np.ndarray, source_start: int, count: int
) -> None:
    """Copy ``count`` elements from one array to another, from these positions on in C order.

    As loops, a copy of a matrix would be four statements and two loops, of which each takes some 2 ms to
    compile.
    """
    elements = source.reshape(-1)[source_start : source_start + count]
    target.reshape(-1)[start : start + count] = elements


@result_type(copy_run)
def _of_copy_run(target, start, source, source_start, count):  # type: ignore[no-untyped-def]  # Numba reads the signature
    arrays = isinstance(target, types.Array) and isinstance(source, types.Array)
    fits = arrays and target.layout == source.layout == "C" and target.dtype == source.dtype
    return types.none if fits else None


@lower_builtin(copy_run, types.Array, types.Integer, types.Array, types.Integer, types.Integer)
def _copied(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    kinds = signature.args

    def number(k: int) -> Any:
        return context.cast(builder, args[k], kinds[k], types.intp)

    target, source = (array_field(context, builder, kinds[k], args[k], "data") for k in (0, 2))
    itemsize = context.get_abi_sizeof(context.get_data_type(kinds[0].dtype))
    place, first = builder.gep(target, [number(1)]), builder.gep(source, [number(3)])
    cgutils.raw_memcpy(builder, place, first, number(4), itemsize)
    return context.get_dummy_value()


def fill(a: np.ndarray, element: complex) -> None:
    """Set each element of ``a``, in C order, to ``element``."""
    a[...] = element


@result_type(fill)
def _of_fill(a, element):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if isinstance(a, types.Array) and a.layout == "C" else None


@lower_builtin(fill, types.Array, types.Any)
def _filled(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    kind, element_type = signature.args
    data, n_items = (
        array_field(context, builder, kind, args[0], name) for name in ("data", "nitems")
    )
    element = context.cast(builder, args[1], element_type, kind.dtype)
    with cgutils.for_range(builder, n_items) as loop:
        context.pack_value(builder, kind.dtype, element, builder.gep(data, [loop.index]))
    return context.get_dummy_value()


FUNCTIONS = {f.__name__: f for f in (empty, on_stack, copy_run, fill)}
