"""Views of arrays with other axes."""

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


def in_line(a: np.ndarray) -> Any:
    """View ``a``, in C order, with one axis.

    ``a.reshape(-1)`` calls a function that searches for a way without a copy; in C order there always
    is one.
    """
    return a.reshape(-1)


@result_type(in_line)
def _type_of_in_line(a):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return a.copy(ndim=1) if isinstance(a, types.Array) and a.layout == "C" else None


@lower_builtin(in_line, types.Array)
def _lower_in_line(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    data, n_items = (
        array_field(context, builder, signature.args[0], args[0], name)
        for name in ("data", "nitems")
    )
    return _view(context, builder, signature, args[0], data, [n_items])


def view_of_run(a: np.ndarray, start: int, shape: Sequence[int]) -> Any:
    """View the elements of ``a``, in C order, from ``start`` on as an array of a shape."""
    return a.reshape(-1)[start : start + math.prod(shape)].reshape(shape)


@result_type(view_of_run)
def _type_of_view_of_run(a, start, shape):  # type: ignore[no-untyped-def]  # Numba reads the signature
    is_in_order = isinstance(a, types.Array) and a.layout == "C"
    return a.copy(ndim=len(shape)) if is_in_order else None


@lower_builtin(view_of_run, types.Array, types.Integer, types.BaseTuple)
def _lower_view_of_run(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    array, start, lengths = signature.args
    data = array_field(context, builder, array, args[0], "data")
    first = context.cast(builder, args[1], start, types.intp)
    shape = [
        context.cast(builder, n, t, types.intp)
        for n, t in zip(cgutils.unpack_tuple(builder, args[2]), lengths, strict=True)
    ]
    return _view(context, builder, signature, args[0], builder.gep(data, [first]), shape)


def _view(
    context: CPUContext,
    builder: ir.IRBuilder,
    signature: Signature,
    source: ir.Value,
    data: ir.Value,
    shape: list[Any],
) -> Any:
    """An array in C order in the memory of ``source``, the first argument, from ``data`` on."""
    kind = signature.return_type
    strides = [
        context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    ]
    for n in shape[:0:-1]:
        strides.insert(0, builder.mul(strides[0], n))
    meminfo, parent = (
        array_field(context, builder, signature.args[0], source, name)
        for name in ("meminfo", "parent")
    )
    strides = strides[: kind.ndim]
    value = array_value(context, builder, kind, data, shape, strides, meminfo, parent)
    context.nrt.incref(builder, kind, value)
    return value


FUNCTIONS = {f.__name__: f for f in (in_line, view_of_run)}
