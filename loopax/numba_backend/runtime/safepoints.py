"""Safepoints: places at which a loop checks for signals and time limits.

Python only records a signal while native code runs. The handler, which raises `KeyboardInterrupt`, runs
in a thread that holds the interpreter's lock. So a long loop reads the clock once in a period of steps,
and some ten times a second calls Python. An error raised there propagates through the native code by
Numba's own mechanism for Python errors. A loop pays one comparison of its index a step.

The main thread alone checks for signals, since Python runs their handlers nowhere else. Other threads
take the lock only while a thread has a `loopax.time_limit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.extending import lower_builtin

from loopax.base.time_limits import (
    ASKED,
    CHECK,
    COUNTS_CYCLES,
    INTERVAL,
    LAST,
    LATER,
    MAIN,
    WORDS,
    address_of_words,
)
from loopax.base.upstream.numba import CPUContext, Signature, cgutils, ir, llvm
from loopax.numba_backend.runtime.instructions import result_type

SYMBOL = "loopax_safepoint_words"  # the symbol of `WORDS` in native code, from the disk too

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_POINTER = ir.PointerType(ir.IntType(8))
llvm.add_symbol(SYMBOL, address_of_words())


def safepoint(i: int, period: int) -> None:
    """Check once in ``period`` steps, a power of 2, in step ``i`` of a loop, counted from 0.

    Raises
    ------
    BaseException
        The error of a signal handler, such as `KeyboardInterrupt`, or `loopax.TimeLimitExceeded`. (Run
        as Python the function does nothing.)
    """


@result_type(safepoint)
def _type_of_safepoint(i, period):  # type: ignore[no-untyped-def]  # Numba reads the signature
    return types.none if isinstance(i, types.Integer) else None


@lower_builtin(safepoint, types.Integer, types.Integer)
def _lower(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
) -> Any:
    i, period = (
        context.cast(builder, x, t, types.int64) for x, t in zip(args, signature.args, strict=True)
    )
    with stopping(builder, i, period):
        context.call_conv.return_exc(builder)
    return context.get_dummy_value()


@contextmanager
def stopping(builder: ir.IRBuilder, i: ir.Value, period: ir.Value) -> Iterator[None]:
    """Build code that runs if Python has set an error, checked once in ``period`` steps."""
    last = builder.sub(period, _I64(1))
    is_due = builder.icmp_unsigned("==", builder.and_(i, last), last)
    with builder.if_then(is_due, likely=False):
        status = builder.call(_check_function(builder.module), [])
        with builder.if_then(builder.icmp_signed("!=", status, _I32(0)), likely=False):
            yield


def raise_later(builder: ir.IRBuilder) -> None:
    """Defer the pending error until Python runs in this thread again: see `_later`."""
    lock = _call(builder, "PyGILState_Ensure", _I32)
    kind, error, where = (cgutils.alloca_once_value(builder, _POINTER(None)) for _ in range(3))
    _call(builder, "PyErr_Fetch", ir.VoidType(), kind, error, where)
    _call(builder, "PyErr_NormalizeException", ir.VoidType(), kind, error, where)
    later = builder.inttoptr(_load_word(builder, LATER), _POINTER)
    argument = builder.load(error)
    delayed = _call(
        builder, "PyObject_CallFunctionObjArgs", _POINTER, later, argument, _POINTER(None)
    )
    # A second signal has arrived: the first error is raised directly.
    failed = cgutils.is_null(builder, delayed)
    with builder.if_then(failed):
        _call(builder, "PyErr_Clear", ir.VoidType())
    thread = _call(builder, "PyThread_get_thread_ident", _I64)
    raised = builder.select(failed, builder.load(kind), delayed)
    _call(builder, "PyThreadState_SetAsyncExc", _I32, thread, raised)
    for owned in (delayed, *map(builder.load, (kind, error, where))):
        _call(builder, "Py_DecRef", ir.VoidType(), owned)
    _call(builder, "PyGILState_Release", ir.VoidType(), lock)


def _check_function(module: ir.Module) -> ir.Function:
    """Call Python, unless it was called recently; returns nonzero if it has set an error.

    Each module has one function, not inlined, so that loops stay short.

    It has C's calling convention. LLVM's ``preserve_allcc`` saves a loop with states in registers some
    stores (1.02 instead of 1.03 of the time for the gradient of a hidden Markov model). But it made the
    inverse of a 40 x 40 matrix in an XLA handler wrong after the first check (LLVM 22).
    """
    name = "loopax_look"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(_I32, []), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    now = _now(builder)
    since = builder.sub(now, _load_word(builder, LAST))
    is_early = builder.icmp_unsigned("<=", since, _load_word(builder, INTERVAL))
    with builder.if_then(is_early, likely=True):
        builder.ret(_I32(0))
    builder.store(now, _word(builder, LAST))
    thread = _call(builder, "PyThread_get_thread_ident", _I64)
    is_main = builder.icmp_unsigned("==", thread, _load_word(builder, MAIN))
    is_asked = builder.icmp_signed("!=", _load_word(builder, ASKED), _I64(0))
    with builder.if_then(builder.not_(builder.or_(is_main, is_asked))):
        builder.ret(_I32(0))
    # An XLA thread that Python does not know has no limit and receives no signal.
    state = _call(builder, "PyGILState_GetThisThreadState", _POINTER)
    with builder.if_then(cgutils.is_null(builder, state)):
        builder.ret(_I32(0))
    lock = _call(builder, "PyGILState_Ensure", _I32)
    status = cgutils.alloca_once_value(builder, _call(builder, "PyErr_CheckSignals", _I32))
    no_signal = builder.icmp_signed("==", builder.load(status), _I32(0))
    with builder.if_then(builder.and_(no_signal, is_asked)):
        check = builder.inttoptr(_load_word(builder, CHECK), _POINTER)
        result = _call(builder, "PyObject_CallNoArgs", _POINTER, check)
        with builder.if_else(cgutils.is_null(builder, result)) as (raised, passed):
            with raised:
                builder.store(_I32(-1), status)
            with passed:
                _call(builder, "Py_DecRef", ir.VoidType(), result)
    _call(builder, "PyGILState_Release", ir.VoidType(), lock)
    builder.ret(builder.load(status))
    return function


def _now(builder: ir.IRBuilder) -> Any:
    if COUNTS_CYCLES:
        counter = builder.module.declare_intrinsic(
            "llvm.readcyclecounter", (), ir.FunctionType(_I64, [])
        )
        return builder.call(counter, [])
    moment = cgutils.alloca_once(builder, _I64, size=2)  # a `timespec`
    _call(builder, "clock_gettime", _I32, _I32(time.CLOCK_MONOTONIC), moment)
    seconds, nanoseconds = (builder.load(builder.gep(moment, [_I64(k)])) for k in range(2))
    return builder.add(builder.mul(seconds, _I64(1_000_000_000)), nanoseconds)


def _word(builder: ir.IRBuilder, k: int) -> Any:
    kind = ir.ArrayType(_I64, len(WORDS))
    words = (
        cgutils.add_global_variable(builder.module, kind, SYMBOL)
        if (SYMBOL not in builder.module.globals)
        else builder.module.globals[SYMBOL]
    )
    return builder.gep(words, [_I64(0), _I64(k)])


def _load_word(builder: ir.IRBuilder, k: int) -> Any:
    return builder.load(_word(builder, k))


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> Any:
    kind = ir.FunctionType(result, [x.type for x in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


FUNCTIONS = {"safepoint": safepoint}
