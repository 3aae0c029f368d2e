"""Descriptors of arrays as LLVM values, without the stack slot in which Numba builds and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types

from loopax.base.upstream.numba import CPUContext, ir


def array_value(
    context: CPUContext,
    builder: ir.IRBuilder,
    kind: types.Array,
    data: ir.Value,
    shape: Sequence[ir.Value],
    strides: Sequence[ir.Value],
    meminfo: ir.Value | None = None,
    parent: ir.Value | None = None,
) -> Any:
    """The descriptor of an array of ``kind``: one constant, into which the other fields are inserted.

    Parameters
    ----------
    data
        The address of the first element.
    shape, strides
        Integers of Numba's ``intp``; strides are in bytes.
    meminfo
        The memory whose references Numba counts. None: memory that the function does not own.
    parent
        The Python object that the elements belong to, if any.
    """
    model: Any = context.data_model_manager[kind]
    intp = context.get_value_type(types.intp)
    n_items: Any = intp(1)
    for n in shape:
        n_items = builder.mul(n_items, n, flags=["nsw"])
    fields = {
        "meminfo": meminfo,
        "parent": parent,
        "nitems": n_items,
        "itemsize": intp(context.get_abi_sizeof(context.get_data_type(kind.dtype))),
        "data": data,
        "shape": _packed(builder, intp, shape),
        "strides": _packed(builder, intp, strides),
    }
    positions = {name: model.get_field_position(name) for name in fields}
    struct = model.get_value_type()
    constants = [ir.Constant(element, None) for element in struct.elements]
    for name, field in fields.items():
        if isinstance(field, ir.Constant):
            constants[positions[name]] = field
    value: Any = ir.Constant(struct, constants)
    for name, field in fields.items():
        if field is not None and not isinstance(field, ir.Constant):
            value = builder.insert_value(value, field, positions[name])
    return value


def array_field(
    context: CPUContext, builder: ir.IRBuilder, kind: types.Array, array: ir.Value, name: str
) -> Any:
    """One field of the descriptor of an array, by its name in Numba, such as ``data`` or ``shape``."""
    model: Any = context.data_model_manager[kind]
    return builder.extract_value(array, model.get_field_position(name))


def _packed(builder: ir.IRBuilder, intp: Any, numbers: Sequence[ir.Value]) -> Any:
    """An LLVM array of integers."""
    kind = ir.ArrayType(intp, len(numbers))
    if all(isinstance(n, ir.Constant) for n in numbers):
        return ir.Constant(kind, list(numbers))
    packed: Any = ir.Constant(kind, ir.Undefined)
    for k, n in enumerate(numbers):
        packed = builder.insert_value(packed, n, k)
    return packed
