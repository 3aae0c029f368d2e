"""Safepoints: where a loop looks whether somebody wants it to stop.

Python only notes a signal while native code runs. Its handler, which raises `KeyboardInterrupt`, is called
by the thread that has the interpreter's lock. So a long loop has it called: every so many steps it reads
the clock, and some ten times a second it asks Python. What is raised there leaves the native code as it is,
through Numba's own way for errors of Python. A loop pays one comparison of its index a step.

Only in the main thread is Python asked for signals: it calls their handlers nowhere else. The other threads
take the lock only while one has a `loopax.time_limit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import types
from numba.extending import lower_builtin, type_callable

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
from loopax.base.upstream.numba import cgutils, ir, llvm

SYMBOL = "loopax_safepoint_words"  # by which native code, from the disk too, finds `WORDS`

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_POINTER = ir.PointerType(ir.IntType(8))
llvm.add_symbol(SYMBOL, address_of_words())


def safepoint(i: int, period: int) -> None:
    """In step ``i`` of a loop, counted from 0: look once in ``period`` steps, a power of 2.

    Raises
    ------
    BaseException
        What a handler of a signal raises, `KeyboardInterrupt` for one, or `loopax.TimeLimitExceeded`. (In
        Python that is not for this function to raise, and nothing is done.)
    """


@type_callable(safepoint)
def _of_safepoint(context):  # type: ignore[no-untyped-def]  # Numba reads the signature of what follows
    def result(i, period):  # type: ignore[no-untyped-def]
        return types.none if isinstance(i, types.Integer) else None

    return result


@lower_builtin(safepoint, types.Integer, types.Integer)
def _lower(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
    i, period = (
        context.cast(builder, x, t, types.int64) for x, t in zip(args, signature.args, strict=True)
    )
    with stopping(builder, i, period):
        context.call_conv.return_exc(builder)
    return context.get_dummy_value()


@contextmanager
def stopping(builder: ir.IRBuilder, i: Any, period: Any) -> Iterator[None]:
    """What is done in step ``i`` where Python has set an error. It is asked once in ``period`` steps."""
    last = builder.sub(period, _I64(1))
    is_due = builder.icmp_unsigned("==", builder.and_(i, last), last)
    with builder.if_then(is_due, likely=False):
        asked = builder.call(_look_function(builder.module), [])
        with builder.if_then(builder.icmp_signed("!=", asked, _I32(0)), likely=False):
            yield


def raise_later(builder: ir.IRBuilder) -> None:
    """Have Python raise the error that is set when it runs in this thread again: see `_later`."""
    lock = _call(builder, "PyGILState_Ensure", _I32)
    kind, error, where = (cgutils.alloca_once_value(builder, _POINTER(None)) for _ in range(3))
    _call(builder, "PyErr_Fetch", ir.VoidType(), kind, error, where)
    _call(builder, "PyErr_NormalizeException", ir.VoidType(), kind, error, where)
    later = builder.inttoptr(_read(builder, LATER), _POINTER)
    argument = builder.load(error)
    made = _call(builder, "PyObject_CallFunctionObjArgs", _POINTER, later, argument, _POINTER(None))
    # A second signal has come: the first one is raised as it is.
    failed = cgutils.is_null(builder, made)
    with builder.if_then(failed):
        _call(builder, "PyErr_Clear", ir.VoidType())
    thread = _call(builder, "PyThread_get_thread_ident", _I64)
    raised = builder.select(failed, builder.load(kind), made)
    _call(builder, "PyThreadState_SetAsyncExc", _I32, thread, raised)
    for owned in (made, *map(builder.load, (kind, error, where))):
        _call(builder, "Py_DecRef", ir.VoidType(), owned)
    _call(builder, "PyGILState_Release", ir.VoidType(), lock)


def _look_function(module: ir.Module) -> ir.Function:
    """Ask Python, if it has not been asked for a while; not 0 if it has set an error.

    One of each module, not inlined: loops stay as short as they are.

    It has C's calling convention. LLVM's ``preserve_allcc`` spares a loop that holds its states in
    registers some stores (1.02 in the place of 1.03 of the time for the gradient of a hidden Markov
    model), but made the inverse of a 40 x 40 matrix in a handler of XLA's wrong from the first look on
    (LLVM 22).
    """
    name = "loopax_look"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(_I32, []), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    now = _now(builder)
    since = builder.sub(now, _read(builder, LAST))
    is_early = builder.icmp_unsigned("<=", since, _read(builder, INTERVAL))
    with builder.if_then(is_early, likely=True):
        builder.ret(_I32(0))
    builder.store(now, _word(builder, LAST))
    thread = _call(builder, "PyThread_get_thread_ident", _I64)
    is_main = builder.icmp_unsigned("==", thread, _read(builder, MAIN))
    is_asked = builder.icmp_signed("!=", _read(builder, ASKED), _I64(0))
    with builder.if_then(builder.not_(builder.or_(is_main, is_asked))):
        builder.ret(_I32(0))
    # A thread of XLA's that Python does not know has no limit and gets no signal.
    state = _call(builder, "PyGILState_GetThisThreadState", _POINTER)
    with builder.if_then(cgutils.is_null(builder, state)):
        builder.ret(_I32(0))
    lock = _call(builder, "PyGILState_Ensure", _I32)
    found = cgutils.alloca_once_value(builder, _call(builder, "PyErr_CheckSignals", _I32))
    no_signal = builder.icmp_signed("==", builder.load(found), _I32(0))
    with builder.if_then(builder.and_(no_signal, is_asked)):
        check = builder.inttoptr(_read(builder, CHECK), _POINTER)
        result = _call(builder, "PyObject_CallNoArgs", _POINTER, check)
        with builder.if_else(cgutils.is_null(builder, result)) as (raised, done):
            with raised:
                builder.store(_I32(-1), found)
            with done:
                _call(builder, "Py_DecRef", ir.VoidType(), result)
    _call(builder, "PyGILState_Release", ir.VoidType(), lock)
    builder.ret(builder.load(found))
    return function


def _now(builder: ir.IRBuilder) -> Any:
    if COUNTS_CYCLES:
        counter = builder.module.declare_intrinsic(
            "llvm.readcyclecounter", (), ir.FunctionType(_I64, [])
        )
        return builder.call(counter, [])
    moment = cgutils.alloca_once(builder, _I64, size=2)  # a `timespec`
    _call(builder, "clock_gettime", _I32, _I32(time.CLOCK_MONOTONIC), moment)
    seconds, rest = (builder.load(builder.gep(moment, [_I64(k)])) for k in range(2))
    return builder.add(builder.mul(seconds, _I64(1_000_000_000)), rest)


def _word(builder: ir.IRBuilder, k: int) -> Any:
    kind = ir.ArrayType(_I64, len(WORDS))
    words = (
        cgutils.add_global_variable(builder.module, kind, SYMBOL)
        if (SYMBOL not in builder.module.globals)
        else builder.module.globals[SYMBOL]
    )
    return builder.gep(words, [_I64(0), _I64(k)])


def _read(builder: ir.IRBuilder, k: int) -> Any:
    return builder.load(_word(builder, k))


def _call(builder: ir.IRBuilder, name: str, result: Any, *args: Any) -> Any:
    kind = ir.FunctionType(result, [x.type for x in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


FUNCTIONS = {"safepoint": safepoint}
