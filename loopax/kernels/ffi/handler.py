"""Wrap a native function as a handler that XLA calls: read arrays from a call frame, write results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from numba import types
from numba.extending import intrinsic

from loopax.base.compiling.compile_status import compilation_of
from loopax.base.uninterrupted import uninterrupted
from loopax.base.upstream.numba import CFunc, cgutils, ir, use_cache
from loopax.jax_backend.staging.primitive_rules import Batch
from loopax.kernels.ffi.call_frame import I64, CallFrame
from loopax.kernels.ffi.failures import STOPPED
from loopax.kernels.ffi.row import ArrayType, lengths_of, row_function
from loopax.kernels.ffi.threads import run_in_threads
from loopax.numba_backend.cache.code_cache import CodeCache, is_possible
from loopax.numba_backend.runtime.safepoints import raise_later, stopping

_ROWS = 16  # rows between two tests for an interrupt: a row may be a program of microseconds


def handler(
    function: Any,
    inputs: Sequence[ArrayType],
    outputs: Sequence[ArrayType],
    mapped: Batch = (),
    key: str | None = None,
    threads: bool = False,
) -> Any:
    """Compile ``function`` to a C function of a call frame's address that returns 0 or an XLA error.

    Parameters
    ----------
    function
        Numba's function of one value for each of ``inputs``, which returns a tuple of new arrays in C
        order, and numbers where there are no axes.
    inputs, outputs
        Their types, without the axes of a batch.
    mapped
        For each axis of a batch, the first one first, whether the inputs have it. The function is called
        for each element; all outputs have these axes.
    key
        The key of its code on disk, if it may be kept there; see `content_key`.
    threads
        Whether the elements of a batch are divided among XLA's threads. Not on Windows.

    Returns
    -------
    Numba's ``CFunc``, which must live for as long as XLA may call it.
    """

    @intrinsic
    def run(typing_context: object, frame: ir.Value) -> Any:
        def write(
            context: Any, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]
        ) -> Any:
            types_taken = tuple(t.native for t in inputs)
            function.compile(types_taken)
            compiled = function.overloads[types_taken]
            context.add_linking_libs([compiled.library])
            row = row_function(context, builder.module, compiled, inputs, outputs, mapped)
            return _all_rows(context, builder, args[0], row, mapped, threads)

        return types.int64(types.int64), write

    def program(frame: int) -> int:
        return run(frame)

    cfunc = CFunc(program, ((types.int64,), types.int64), locals={}, options={"nopython": True})
    if key is not None and is_possible():
        use_cache(cfunc, CodeCache(key))
    with compilation_of(function.py_func):
        uninterrupted(cfunc.compile)
    return cfunc


def _all_rows(
    context: Any,
    builder: ir.IRBuilder,
    address: ir.Value,
    row: ir.Function,
    mapped: Batch,
    threads: bool,
) -> Any:
    """Call ``row`` for all elements of the batch, until one fails; its failure, or 0."""
    failure = cgutils.alloca_once_value(builder, I64(0))
    frame = CallFrame(builder, address)
    with frame.is_call():
        total = reduce(builder.mul, lengths_of(mapped, frame), I64(1))
        if threads and mapped:
            builder.store(run_in_threads(context, builder, address, row, total), failure)
        else:
            with cgutils.for_range(builder, total) as loop:
                status = builder.call(row, [address, loop.index, I64(1)])
                builder.store(status, failure)
                with cgutils.if_unlikely(builder, builder.icmp_unsigned("!=", status, I64(0))):
                    loop.do_break()
                with stopping(builder, loop.index, I64(_ROWS)):
                    raise_later(builder)
                    builder.store(I64(STOPPED), failure)
                    loop.do_break()
    status = builder.load(failure)
    is_stopped = builder.icmp_unsigned("==", status, I64(STOPPED))
    return builder.select(is_stopped, I64(0), status)
