"""Reads and writes of single elements of arrays, through the fields of the array's descriptor.

Numba stores the descriptor, seven numbers and pointers, in a stack slot wherever an element is read.
"""

from __future__ import annotations

from typing import Any

from numba import types

from loopax.base.compiling.array_values import array_field
from loopax.base.upstream.numba import Lower, Signature, cgutils, ir, numba_ir


class LowerElements(Lower):  # type: ignore[misc]  # Numba has no types
    """Numba's lowering, but for elements at integer indices of arrays of numbers."""

    def init(self) -> None:
        super().init()
        self.never_negative: set[int] = set()  # ids of LLVM values

    def lower_expr(self, type_: types.Type, expression: numba_ir.Expr) -> Any:
        # Numba first looks for implementations for literal indices, which tuples and records have.
        if (
            expression.op == "static_getitem"
            and isinstance(expression.index, int | tuple)
            and self._is_array(expression.value)
        ):
            signature = self.fndesc.calltypes[expression]
            return self.lower_getitem(
                type_, expression, expression.value, expression.index_var, signature
            )
        return super().lower_expr(type_, expression)

    def lower_inst(self, statement: numba_ir.Stmt) -> Any:
        if isinstance(statement, numba_ir.StaticSetItem) and self._is_array(statement.target):
            signature = self.fndesc.calltypes[statement]
            return self.lower_setitem(
                statement.target, statement.index_var, statement.value, signature
            )
        return super().lower_inst(statement)

    def _is_array(self, local: numba_ir.Var) -> bool:
        return isinstance(self.typeof(local.name), types.Array)

    def lower_getitem(
        self,
        type_: types.Type,
        expression: numba_ir.Expr,
        array: numba_ir.Var,
        index: numba_ir.Var,
        signature: Signature,
    ) -> Any:
        address = self._element(array, index, signature)
        if address is None:
            return super().lower_getitem(type_, expression, array, index, signature)
        declared = signature.args[0]
        element = self.context.unpack_value(
            self.builder, declared.dtype, address, align=_alignment(declared)
        )
        return self.context.cast(self.builder, element, signature.return_type, type_)

    def lower_setitem(
        self, array: numba_ir.Var, index: numba_ir.Var, value: numba_ir.Var, signature: Signature
    ) -> Any:
        address = self._element(array, index, signature)
        declared, _, value_type = signature.args
        if address is None or not is_number(value_type):
            return super().lower_setitem(array, index, value, signature)
        element = self.context.cast(
            self.builder, self._cast_var(value, value_type), value_type, declared.dtype
        )
        self.context.pack_value(
            self.builder, declared.dtype, element, address, align=_alignment(declared)
        )

    def _element(self, array: numba_ir.Var, index: numba_ir.Var, signature: Signature) -> Any:
        """The address of an array's element at integer indices; None for any other expression."""
        declared, index_type = signature.args[:2]
        kinds = index_type.types if isinstance(index_type, types.BaseTuple) else (index_type,)
        if (
            not isinstance(declared, types.Array)
            or self.typeof(array.name) != declared
            or not is_number(declared.dtype)
            or len(kinds) != declared.ndim
            or not all(isinstance(kind, types.Integer) for kind in kinds)
            or self.context.enable_boundscheck
        ):
            return None
        context, builder = self.context, self.builder
        data, shape, strides = (
            array_field(context, builder, declared, self.loadvar(array.name), field)
            for field in ("data", "shape", "strides")
        )
        lengths = cgutils.unpack_tuple(builder, shape, declared.ndim)
        index_value = self._cast_var(index, index_type)
        values = (
            cgutils.unpack_tuple(builder, index_value)
            if isinstance(index_type, types.BaseTuple)
            else [index_value]
        )
        indices = [
            self._from_the_end(kind, value, n)
            for kind, value, n in zip(kinds, values, lengths, strict=True)
        ]
        steps = cgutils.unpack_tuple(builder, strides, declared.ndim)
        return cgutils.get_item_pointer2(
            context, builder, data, lengths, steps, declared.layout, indices
        )

    def _from_the_end(self, kind: types.Integer, index: ir.Value, n: ir.Value) -> Any:
        """The offset of an index, which counts from the end where it is below 0."""
        if not kind.signed:
            return self.context.cast(self.builder, index, kind, types.uintp)
        index = self.context.cast(self.builder, index, kind, types.intp)
        constant = getattr(index, "constant", None)
        if id(index) in self.never_negative or (isinstance(constant, int) and constant >= 0):
            return index
        is_below = self.builder.icmp_signed("<", index, index.type(0))
        return self.builder.select(is_below, self.builder.add(index, n), index)


def is_number(declared: types.Type) -> bool:
    return isinstance(declared, types.Number | types.Boolean)


def _alignment(declared: types.Array) -> int | None:
    return None if declared.aligned else 1
