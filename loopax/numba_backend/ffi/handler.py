"""A native function as a handler that XLA calls: the arrays of a call frame in, and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from loopax.ir.waiting import waiting
from loopax.numba_backend.cache.code_cache import CodeCache, is_possible
from loopax.numba_backend.ffi.call_frame import I64, Buffer, CallFrame
from loopax.numba_backend.ffi.failures import OTHER_SHAPE, SYMBOL
from loopax.numba_backend.runtime.compiling import lines_of

# What Numba makes of the number that a call of a `NumbaFunction` gives for a 0-d argument.
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
        """The type that a native function has for such an argument: an array in C order, or a number."""
        if self.ndim:
            return types.Array(self.element, self.ndim, "C")
        kind = np.dtype(self.dtype).kind
        return self.element if self.dtype == "uint64" else _NUMBERS["i" if kind == "u" else kind]


def handler(
    function: Any,
    inputs: Sequence[ArrayType],
    outputs: Sequence[ArrayType],
    mapped: Sequence[Sequence[bool]] = (),
    key: str | None = None,
) -> Any:
    """``function`` as a C function of the address of a call frame, which returns 0 or an XLA error.

    Parameters
    ----------
    function
        Numba's, of one value for each of ``inputs``. It returns a tuple of new arrays in C order, and of
        numbers where there are no axes.
    inputs, outputs
        Their types, without the axes of a batch.
    mapped
        For each axis of a batch, the first one first, whether the inputs have it. The function is called
        for each element; all outputs have these axes.
    key
        Of its code on disk, if it may be kept there; see `content_key`.

    Returns
    -------
    Numba's ``CFunc``, to be kept for as long as XLA may call it.
    """

    @intrinsic
    def run(typing_context: Any, frame: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            types_taken = tuple(t.native for t in inputs)
            function.compile(types_taken)
            compiled = function.overloads[types_taken]
            context.add_linking_libs([compiled.library])
            return _Writer(context, builder, args[0], compiled, inputs, outputs, mapped).write()

        return types.int64(types.int64), write

    def program(frame: int) -> int:
        return run(frame)

    made = CFunc(program, ((types.int64,), types.int64), locals={}, options={"nopython": True})
    if key is not None and is_possible():
        made._cache = CodeCache(key)
    with waiting(f"native code{lines_of(function.py_func)}"):
        made.compile()
    return made


class _Writer:
    """Writes the body of a handler, as LLVM's instructions: Numba takes 2 s to compile such copies."""

    def __init__(
        self,
        context: Any,
        builder: ir.IRBuilder,
        address: Any,
        compiled: Any,
        inputs: Sequence[ArrayType],
        outputs: Sequence[ArrayType],
        mapped: Sequence[Sequence[bool]],
    ) -> None:
        self.context = context
        self.builder = builder
        self.address = address
        self.compiled = compiled
        self.inputs = inputs
        self.outputs = outputs
        self.mapped = mapped
        self.failure = cgutils.alloca_once_value(builder, I64(0))

    def write(self) -> Any:
        frame = CallFrame(self.builder, self.address)
        with frame.is_call():
            self._arguments = [frame.argument(k) for k in range(len(self.inputs))]
            self._results = [frame.result(k) for k in range(len(self.outputs))]
            self._rows(0, [I64(0) for _ in self.inputs], I64(0))
        return self.builder.load(self.failure)

    def _rows(self, level: int, rows: list[Any], row: Any) -> None:
        """Loops over the axes of the batch from ``level`` on.

        ``rows`` counts the rows of each input that lie before those of the element that the loops further
        out are at, ``row`` those of the outputs.
        """
        if level == len(self.mapped):
            self._row(rows, row)
            return
        builder, has_axis = self.builder, self.mapped[level]
        first = has_axis.index(True)
        length = self._arguments[first].length(self._axes_before(level, first))
        with cgutils.for_range(builder, length) as loop:

            def inside(rows_before: Any) -> Any:
                return builder.add(builder.mul(rows_before, length), loop.index)

            self._rows(
                level + 1,
                [inside(x) if has else x for x, has in zip(rows, has_axis, strict=True)],
                inside(row),
            )
            failed = builder.icmp_unsigned("!=", builder.load(self.failure), I64(0))
            with cgutils.if_unlikely(builder, failed):
                loop.do_break()

    def _axes_before(self, level: int, k: int) -> int:
        """How many axes of the batch before ``level`` input ``k`` has."""
        return sum(has_axis[k] for has_axis in self.mapped[:level])

    def _row(self, rows: list[Any], row: Any) -> None:
        """A call of the function, and its results copied to where XLA wants them."""
        depth = len(self.mapped)
        values = [
            self._value(buffer, t, at, self._axes_before(depth, k))
            for k, (buffer, t, at) in enumerate(
                zip(self._arguments, self.inputs, rows, strict=True)
            )
        ]
        signature = self.compiled.signature
        status, returned = self.context.call_internal_no_propagate(
            self.builder, self.compiled.fndesc, signature, values
        )
        with self.builder.if_else(status.is_error, likely=False) as (failed, done):
            with failed:
                raised = self.builder.load(status.excinfoptr)
                pickled = self.builder.extract_value(raised, 0)
                size = self.builder.sext(self.builder.extract_value(raised, 1), I64)
                self._fail(self.builder.ptrtoint(pickled, I64), size)
            with done:
                types_returned = signature.return_type.types
                for k, (buffer, t) in enumerate(zip(self._results, self.outputs, strict=True)):
                    value = self.builder.extract_value(returned, k)
                    self._return(buffer, t, row, types_returned[k], value)

    def _value(self, buffer: Buffer, t: ArrayType, row: Any, axes: int) -> Any:
        """Row ``row`` of ``buffer``, which has ``axes`` axes of the batch, as the function takes it."""
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
        array = make_array(t.native)(context, builder)
        item = ir.PointerType(context.get_data_type(t.element))
        populate_array(
            array,
            data=builder.inttoptr(data, item),
            shape=lengths,
            strides=strides,
            itemsize=I64(np.dtype(t.dtype).itemsize),
            meminfo=None,
        )
        return array._getvalue()

    def _return(self, buffer: Buffer, t: ArrayType, row: Any, native: Any, value: Any) -> None:
        """Copy ``value``, of the type ``native``, to row ``row`` of ``buffer``, and let go of it."""
        context, builder = self.context, self.builder
        lengths = [buffer.length(len(self.mapped) + k) for k in range(t.ndim)]
        data = self._position(buffer, t, row, lengths)
        if not t.ndim:
            model = context.data_model_manager[t.element]
            number = context.cast(builder, value, native, t.element)
            place = builder.inttoptr(data, ir.PointerType(model.get_data_type()))
            builder.store(model.as_data(builder, number), place)
            return
        assert native.layout == "C", f"a native function returns {native}, which is not in C order"
        array = make_array(native)(context, builder, value)
        same: Any = ir.IntType(1)(1)
        for n, axis in zip(lengths, range(t.ndim), strict=True):
            made = builder.extract_value(array.shape, axis)
            same = builder.and_(same, builder.icmp_signed("==", n, made))
        with builder.if_else(same, likely=True) as (fits, other):
            with fits:
                size: Any = I64(np.dtype(t.dtype).itemsize)
                for n in lengths:
                    size = builder.mul(size, n)
                cgutils.raw_memcpy(
                    builder,
                    builder.inttoptr(data, array.data.type),
                    array.data,
                    size,
                    itemsize=1,
                )
            with other:
                self._fail(I64(0), I64(OTHER_SHAPE))
        context.nrt.decref(builder, native, value)

    def _position(self, buffer: Buffer, t: ArrayType, row: Any, lengths: Sequence[Any]) -> Any:
        """The address of row ``row``, each of these lengths, in ``buffer``."""
        offset = self.builder.mul(row, I64(np.dtype(t.dtype).itemsize))
        for n in lengths:
            offset = self.builder.mul(offset, n)
        return self.builder.add(buffer.data, offset)

    def _fail(self, pickled: Any, size: Any) -> None:
        """Let Python make XLA's error; see `failures`."""
        kind = ir.FunctionType(I64, [I64, I64, I64])
        function = cgutils.get_or_insert_function(self.builder.module, kind, SYMBOL)
        error = self.builder.call(function, [self.address, pickled, size])
        self.builder.store(error, self.failure)
