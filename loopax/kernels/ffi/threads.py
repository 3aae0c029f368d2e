"""Divide the elements of a batch among the threads of XLA's pool.

The calling thread takes element after element, and so does each task that the pool runs; taking one
increments a counter. So nothing waits for a task to start: in a pool of one thread, or if all threads wait,
none would. A task that begins when no element is left ends at once. It does not read the
call frame, which may be gone, but a block of memory that the last thread frees.

The error comes from the first element that fails, as in sequential order, since all elements before it have
been taken before it. The calling thread runs that element once more to make XLA's error.
"""

from __future__ import annotations

from typing import Any

from loopax.base.upstream.numba import cgutils, ir
from loopax.kernels.ffi.call_frame import API, CONTEXT, I64, pointer

# Bytes from the beginning of XLA_FFI_Api.
_ERROR_DESTROY, _SCHEDULE, _NUMBER = 64, 136, 144

# Integers in the block: the call frame, the numbers of elements in all, taken and done, the first
# element that failed, and the number of threads that hold the block.
_FRAME, _TOTAL, _TAKEN, _DONE, _FAILED, _REFERENCES = range(6)
_BYTES = 48

_VOID = ir.VoidType()


def run_in_threads(
    context: Any, builder: ir.IRBuilder, address: ir.Value, row: ir.Function, total: ir.Value
) -> Any:
    """Call ``row`` for ``total`` elements in any order; return the first element's failure, or 0."""
    take_all = _taking_function(builder.module, row)
    task = _task(context, builder.module, take_all)
    failure = cgutils.alloca_once_value(builder, I64(0))
    block = builder.ptrtoint(context.nrt.allocate(builder, I64(_BYTES)), I64)
    for k, value in enumerate((address, total, I64(0), I64(0), total, I64(1))):
        builder.store(value, _field(builder, block, k))
    _schedule(builder, address, task, block, total)
    builder.call(take_all, [block])
    _wait(builder, block, total)
    failed = builder.load_atomic(_field(builder, block, _FAILED), "acquire", 8)
    _release(context, builder, block)
    with builder.if_then(builder.icmp_unsigned("<", failed, total), likely=False):
        builder.store(builder.call(row, [address, failed, I64(1)]), failure)
    return builder.load(failure)


def _taking_function(module: ir.Module, row: ir.Function) -> ir.Function:
    """A function of the block that takes elements and calls ``row`` for each, until none is left."""
    function = _function(module, "loopax_take_all", ir.FunctionType(_VOID, [I64]))
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    block = function.args[0]
    total = builder.load(_field(builder, block, _TOTAL))
    head, inside, end = (function.append_basic_block(name) for name in ("head", "inside", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    element = builder.atomic_rmw("add", _field(builder, block, _TAKEN), I64(1), "seq_cst")
    builder.cbranch(builder.icmp_unsigned("<", element, total), inside, end)
    builder.position_at_end(inside)
    first_failed = _field(builder, block, _FAILED)
    is_before = builder.icmp_unsigned("<", element, builder.load_atomic(first_failed, "acquire", 8))
    with builder.if_then(is_before, likely=True):
        frame = builder.load(_field(builder, block, _FRAME))
        failure = builder.call(row, [frame, element, I64(0)])
        with builder.if_then(builder.icmp_unsigned("!=", failure, I64(0)), likely=False):
            builder.atomic_rmw("umin", first_failed, element, "seq_cst")
    builder.atomic_rmw("add", _field(builder, block, _DONE), I64(1), "seq_cst")
    builder.branch(head)
    builder.position_at_end(end)
    builder.ret_void()
    return function


def _task(context: Any, module: ir.Module, take_all: ir.Function) -> ir.Function:
    """The task that the pool runs, a function of the block."""
    function = _function(module, "loopax_task", ir.FunctionType(_VOID, [I64]))
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.call(take_all, function.args)
    _release(context, builder, function.args[0])
    builder.ret_void()
    return function


def _function(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    function = ir.Function(module, kind, module.get_unique_name(name))
    function.linkage = "internal"
    return function


def _schedule(
    builder: ir.IRBuilder, address: ir.Value, task: ir.Function, block: ir.Value, total: ir.Value
) -> None:
    """Schedule a task for each thread of the pool but one, if there are enough elements."""
    api = builder.load(pointer(builder, address, API, I64))
    context = builder.load(pointer(builder, address, CONTEXT, I64))
    threads = cgutils.alloca_once_value(builder, I64(1))
    _call_api(builder, api, _NUMBER, context, builder.ptrtoint(threads, I64))
    threads_and_rows = builder.load(threads), total
    fewer = builder.icmp_unsigned("<", *threads_and_rows)
    tasks = builder.sub(builder.select(fewer, *threads_and_rows), I64(1))
    references = _field(builder, block, _REFERENCES)
    function = builder.ptrtoint(task, I64)
    with cgutils.for_range(builder, tasks) as loop:
        builder.atomic_rmw("add", references, I64(1), "seq_cst")
        refused = _call_api(builder, api, _SCHEDULE, context, function, block)
        with builder.if_then(refused, likely=False):  # there is no pool
            builder.atomic_rmw("sub", references, I64(1), "seq_cst")
            loop.do_break()


def _call_api(builder: ir.IRBuilder, api: ir.Value, offset: int, *fields: ir.Value) -> Any:
    """Call the function at ``offset`` of XLA's API with a struct of ``fields``; whether it failed."""
    values = [I64(8 * (2 + len(fields))), I64(0), *fields]
    struct = cgutils.alloca_once(builder, I64, size=len(values))
    for k, value in enumerate(values):
        builder.store(value, builder.gep(struct, [I64(k)]))
    kind = ir.PointerType(ir.FunctionType(I64, [I64]))
    function = builder.inttoptr(builder.load(pointer(builder, api, offset, I64)), kind)
    error = builder.call(function, [builder.ptrtoint(struct, I64)])
    failed = builder.icmp_unsigned("!=", error, I64(0))
    if offset != _ERROR_DESTROY:
        with builder.if_then(failed, likely=False):
            _call_api(builder, api, _ERROR_DESTROY, error)
    return failed


def _wait(builder: ir.IRBuilder, block: ir.Value, total: ir.Value) -> None:
    """Wait until all elements are done, including those in other threads."""
    sched_yield = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"
    )
    head, inside, end = (builder.append_basic_block(name) for name in ("wait", "yield", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    n_done = builder.load_atomic(_field(builder, block, _DONE), "acquire", 8)
    builder.cbranch(builder.icmp_unsigned("<", n_done, total), inside, end)
    builder.position_at_end(inside)
    builder.call(sched_yield, [])
    builder.branch(head)
    builder.position_at_end(end)


def _release(context: Any, builder: ir.IRBuilder, block: ir.Value) -> None:
    """Drop one reference to the block; the last thread frees it."""
    references = builder.atomic_rmw("sub", _field(builder, block, _REFERENCES), I64(1), "seq_cst")
    with builder.if_then(builder.icmp_unsigned("==", references, I64(1))):
        context.nrt.free(builder, builder.inttoptr(block, ir.PointerType(ir.IntType(8))))


def _field(builder: ir.IRBuilder, block: ir.Value, k: int) -> Any:
    return pointer(builder, block, 8 * k, I64)
