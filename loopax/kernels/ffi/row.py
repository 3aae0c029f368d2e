"""The function for one row of a batch: read the arguments from a call frame, copy the results into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import types

from loopax.base.compiling.array_values import array_field, array_value
from loopax.base.upstream.numba import cgutils, ir
from loopax.jax_backend.staging.primitive_rules import Batch, axes_before
from loopax.kernels.ffi.call_frame import I64, Buffer, CallFrame
from loopax.kernels.ffi.failures import OTHER_SHAPE, STOPPED, SYMBOL
from loopax.numba_backend.runtime.safepoints import raise_later

# Numba's types of the number that a `NumbaFunction` passes for a 0-d argument.
_NUMBERS = {"b": types.boolean, "i": types.int64, "f": types.float64, "c": types.complex128}


@dataclass(frozen=True)
class ArrayType:
    """The dtype and rank of an argument or result."""

    dtype: str
    ndim: int

    @property
    def element(self) -> Any:
        return numba.from_dtype(np.dtype(self.dtype))

    @property
    def native(self) -> Any:
        """The type of the argument in a native function: an array in C order, or a number."""
        if self.ndim:
            return types.Array(self.element, self.ndim, "C")
        kind = np.dtype(self.dtype).kind
        return self.element if self.dtype == "uint64" else _NUMBERS["i" if kind == "u" else kind]


def lengths_of(mapped: Batch, frame: CallFrame) -> list[Any]:
    """The lengths of the axes of the batch."""
    firsts = [has_axis.index(True) for has_axis in mapped]
    return [
        frame.argument(k).length(axes_before(mapped, level, k)) for level, k in enumerate(firsts)
    ]


def row_function(
    context: Any,
    module: ir.Module,
    compiled: Any,
    inputs: Sequence[ArrayType],
    outputs: Sequence[ArrayType],
    mapped: Batch,
) -> ir.Function:
    """A function ``(frame, row, reports) -> failure`` that calls Numba's function for one row.

    ``row`` counts the rows of the outputs. The failure is 0, or else the address of XLA's error, which
    Python makes; 1 where ``reports`` is 0, and then Python is not called. It is `STOPPED` after an
    interrupt, where Python is about to raise.
    """
    kind = ir.FunctionType(I64, [I64, I64, I64])
    function = ir.Function(module, kind, module.get_unique_name("loopax_row"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _Row(context, builder, function.args, compiled, inputs, outputs, mapped).write()
    return function


class _Row:
    """Writes the body of a row function as LLVM instructions; Numba would take 2 s to compile it."""

    def __init__(
        self,
        context: Any,
        builder: ir.IRBuilder,
        arguments: Sequence[Any],
        compiled: Any,
        inputs: Sequence[ArrayType],
        outputs: Sequence[ArrayType],
        mapped: Batch,
    ) -> None:
        self.context = context
        self.builder = builder
        self.address, self.row, self.reports = arguments
        self.compiled = compiled
        self.inputs = inputs
        self.outputs = outputs
        self.mapped = mapped
        self.failure = cgutils.alloca_once_value(builder, I64(0))

    def write(self) -> None:
        frame = CallFrame(self.builder, self.address)
        self._call(frame, self._rows_of_inputs(lengths_of(self.mapped, frame)))
        self.builder.ret(self.builder.load(self.failure))

    def _rows_of_inputs(self, lengths: Sequence[Any]) -> list[Any]:
        """The row of each input, counted over the axes of the batch that the input has."""
        builder, quotient = self.builder, self.row
        indices: list[Any] = []
        for n in reversed(lengths[1:]):
            indices.insert(0, builder.urem(quotient, n))
            quotient = builder.udiv(quotient, n)
        rows: list[Any] = [I64(0) for _ in self.inputs]
        for index, n, has_axis in zip([quotient, *indices], lengths, self.mapped, strict=False):
            rows = [
                builder.add(builder.mul(x, n), index) if has else x
                for x, has in zip(rows, has_axis, strict=True)
            ]
        return rows

    def _call(self, frame: CallFrame, rows: Sequence[Any]) -> None:
        """Call the function and copy its results into XLA's buffers."""
        depth = len(self.mapped)
        buffers = [frame.argument(k) for k in range(len(self.inputs))]
        values = [
            self._value(buffer, t, row, axes_before(self.mapped, depth, k))
            for k, (buffer, t, row) in enumerate(zip(buffers, self.inputs, rows, strict=True))
        ]
        signature = self.compiled.signature
        status, returned = self.context.call_internal_no_propagate(
            self.builder, self.compiled.fndesc, signature, values
        )
        with self.builder.if_else(status.is_error, likely=False) as (failed, succeeded):
            with failed:
                with self.builder.if_else(status.is_python_exc) as (stopped, raised_here):
                    with stopped:
                        raise_later(self.builder)
                        self.builder.store(I64(STOPPED), self.failure)
                    with raised_here:
                        raised = self.builder.load(status.excinfoptr)
                        pickled = self.builder.extract_value(raised, 0)
                        size = self.builder.sext(self.builder.extract_value(raised, 1), I64)
                        self._fail(self.builder.ptrtoint(pickled, I64), size)
            with succeeded:
                types_returned = signature.return_type.types
                for k, t in enumerate(self.outputs):
                    value = self.builder.extract_value(returned, k)
                    self._return(frame.result(k), t, types_returned[k], value)

    def _value(self, buffer: Buffer, t: ArrayType, row: ir.Value, axes: int) -> Any:
        """Row ``row`` of ``buffer``, which has ``axes`` axes of the batch, as an argument."""
        context, builder = self.context, self.builder
        lengths = [buffer.length(axes + k) for k in range(t.ndim)]
        data = self._position(buffer, t, row, lengths)
        if not t.ndim:
            model = context.data_model_manager[t.element]
            number = model.from_data(
                builder, builder.load(builder.inttoptr(data, ir.PointerType(model.get_data_type())))
            )
            return context.cast(builder, number, t.element, t.native)
        strides: list[Any] = [I64(np.dtype(t.dtype).itemsize)]
        for n in reversed(lengths[1:]):
            strides.insert(0, builder.mul(strides[0], n))
        item = ir.PointerType(context.get_data_type(t.element))
        first = builder.inttoptr(data, item)
        return array_value(context, builder, t.native, first, lengths, strides)

    def _return(self, buffer: Buffer, t: ArrayType, native: Any, value: ir.Value) -> None:
        """Copy ``value``, of the type ``native``, to its row of ``buffer``, and release it."""
        context, builder = self.context, self.builder
        lengths = [buffer.length(len(self.mapped) + k) for k in range(t.ndim)]
        data = self._position(buffer, t, self.row, lengths)
        if not t.ndim:
            model = context.data_model_manager[t.element]
            number = context.cast(builder, value, native, t.element)
            target = builder.inttoptr(data, ir.PointerType(model.get_data_type()))
            builder.store(model.as_data(builder, number), target)
            return
        assert native.layout == "C", f"a native function returns {native}, which is not in C order"
        shape, elements = (
            array_field(context, builder, native, value, name) for name in ("shape", "data")
        )
        has_shape: Any = ir.IntType(1)(1)
        for n, axis in zip(lengths, range(t.ndim), strict=True):
            length = builder.extract_value(shape, axis)
            has_shape = builder.and_(has_shape, builder.icmp_signed("==", n, length))
        with builder.if_else(has_shape, likely=True) as (fits, differs):
            with fits:
                size: Any = I64(np.dtype(t.dtype).itemsize)
                for n in lengths:
                    size = builder.mul(size, n)
                cgutils.raw_memcpy(
                    builder, builder.inttoptr(data, elements.type), elements, size, itemsize=1
                )
            with differs:
                self._fail(I64(0), I64(OTHER_SHAPE))
        context.nrt.decref(builder, native, value)

    def _position(self, buffer: Buffer, t: ArrayType, row: ir.Value, lengths: Sequence[Any]) -> Any:
        """The address of row ``row`` in ``buffer``, whose rows have these lengths."""
        offset = self.builder.mul(row, I64(np.dtype(t.dtype).itemsize))
        for n in lengths:
            offset = self.builder.mul(offset, n)
        return self.builder.add(buffer.data, offset)

    def _fail(self, pickled: ir.Value, size: ir.Value) -> None:
        """Record a failure, and let Python make XLA's error if the row reports; see `failures`."""
        builder, kind = self.builder, ir.FunctionType(I64, [I64, I64, I64])
        builder.store(I64(1), self.failure)
        with builder.if_then(builder.icmp_unsigned("!=", self.reports, I64(0))):
            function = cgutils.get_or_insert_function(builder.module, kind, SYMBOL)
            builder.store(builder.call(function, [self.address, pickled, size]), self.failure)
