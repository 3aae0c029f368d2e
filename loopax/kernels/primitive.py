"""The primitive ``loopax_kernel``: its shapes, batches and lowering.

Its derivatives and batches are the same primitive, with other kernels or more axes, so that every
transformation of JAX applies, to any order. On the CPU it is one call of native code; on other
platforms, and where it is exported, JAX's operations. The rules for its derivatives are in
`derivative_rules`.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from loopax.base.errors import UnsupportedOpError
from loopax.base.lock import TRACING
from loopax.base.upstream.jax import batching, mlir, owner_cache
from loopax.cache.facts import Fact
from loopax.jax_backend.staging.batch_rows import traced_over
from loopax.jax_backend.staging.checkable import Checkable
from loopax.jax_backend.staging.primitive_rules import (
    Batch,
    BatchAxes,
    axes_before,
    over_batch,
    with_axis_in_front,
)
from loopax.kernels.debug_flags import check_special, without_debug_flags
from loopax.kernels.derivative_kernels import pushforward
from loopax.kernels.kernel import Kernel, Shapes
from loopax.kernels.measurement import Times, conditions, measured
from loopax.lowering.rewritten import fact_of_rewritten
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array

# The outputs have all axes of a batch.
kernel_p = Checkable("loopax_kernel")
# Of a kernel for outputs and their tangents: JAX splits it where a transpose follows.
kernel_jvp_p = Checkable("loopax_kernel_jvp")


def bind(kernel: Kernel, args: Sequence[Array], batch: Batch = ()) -> list[Any]:
    """Bind ``kernel`` to ``args``, which have the dtypes that its inputs declare; return the outputs."""
    args = manual_axes.vary_alike(args)
    primitive = kernel_p if kernel.jvp_of is None else kernel_jvp_p
    if not kernel.is_checkable:
        return primitive.bind(*args, kernel=kernel, batch=batch)
    avals = tuple((jnp.shape(x), jnp.result_type(x)) for x in args)
    jaxpr = jaxpr_of(kernel, batch, avals)
    return primitive.bind(*args, kernel=kernel, batch=batch, call_jaxpr=jaxpr)


@owner_cache
def jaxpr_of(kernel: Kernel, batch: Batch, avals: tuple[Any, ...]) -> Any:
    """Trace the kernel over its batch, with its checks, for arguments of these shapes and dtypes."""
    args = [jax.ShapeDtypeStruct(*aval) for aval in avals]
    return jax.make_jaxpr(in_jax(kernel, batch))(*args)


@owner_cache
def _compiled(kernel: Kernel, batch: Batch) -> Any:
    return jax.jit(lambda *args: bind(kernel, args, batch))


def _impl(*args: Array, kernel: Kernel, batch: Batch, **params: object) -> Any:
    with without_debug_flags():
        outs = _compiled(kernel, batch)(*args)
    check_special(kernel.name, [outs[k] for k in kernel.floats])
    return outs


def _abstract(*args: ShapedArray, kernel: Kernel, batch: Batch, **params: object) -> list[Any]:
    rows = row_shapes(args, batch)
    lengths = _batch_shape(args, batch)
    shapes = kernel.shapes(rows)
    results = [
        jax.ShapeDtypeStruct((*lengths, *s), t) for s, t in zip(shapes, kernel.dtypes, strict=True)
    ]
    return manual_axes.results_like(args, results)


def row_shapes(args: Sequence[Any], batch: Batch) -> Shapes:
    """The shapes of one element of the batch."""
    return tuple(jnp.shape(x)[axes_before(batch, len(batch), k) :] for k, x in enumerate(args))


def _batch_shape(args: Sequence[Any], batch: Batch) -> tuple[int, ...]:
    firsts = [has_axis.index(True) for has_axis in batch]
    return tuple(jnp.shape(args[k])[axes_before(batch, level, k)] for level, k in enumerate(firsts))


# -- batches ---------------------------------------------------------------------------------------


def _batched(
    args: Sequence[jax.Array], axes: BatchAxes, *, kernel: Kernel, batch: Batch, **params: object
) -> Any:
    has_axis = tuple(axis is not None for axis in axes)
    operands = with_axis_in_front(args, axes)
    if kernel.jvp_of is not None:
        primal_kernel, wrt = kernel.jvp_of
        n = len(primal_kernel.inputs)
        if not any(has_axis[:n]):  # many tangents at one point, as in jacfwd: one value
            outs = bind(primal_kernel, operands[:n], tuple(level[:n] for level in batch))
            tangents = bind(pushforward(primal_kernel, wrt), operands, (has_axis, *batch))
            return [*outs, *tangents], [None] * len(outs) + [0] * len(tangents)
    outs = bind(kernel, operands, (has_axis, *batch))
    return outs, [0] * len(outs)


# -- lowering --------------------------------------------------------------------------------------


def in_jax(kernel: Kernel, batch: Batch) -> Any:
    """Build the function of the kernel over its batch, in JAX's operations."""
    if not batch:
        return kernel.in_jax
    over_rows = over_batch(kernel.in_jax, batch)

    def in_operations(*args: Array) -> Any:
        with traced_over(_rows(args, batch)):
            return over_rows(*args)

    return in_operations


def _lowered_to_jax(
    ctx: mlir.LoweringRuleContext, *args: object, kernel: Kernel, batch: Batch, **params: object
) -> Any:
    return mlir.lower_fun(in_jax(kernel, batch), multiple_results=True)(ctx, *args)


def _lowered_to_native(
    ctx: mlir.LoweringRuleContext, *args: object, kernel: Kernel, batch: Batch, **params: object
) -> Any:
    exported = ctx.module_context.lowering_parameters.for_export
    if exported or not _chooses_native(kernel, ctx.avals_in, batch):
        return _lowered_to_jax(ctx, *args, kernel=kernel, batch=batch)
    try:
        shapes, rows = row_shapes(ctx.avals_in, batch), _rows(ctx.avals_in, batch)
        uses_threads = kernel.policy.uses_threads(shapes, rows)
        name, address = kernel.code.handler(shapes, batch, uses_threads)
    except UnsupportedOpError as error:
        warnings.warn(f"{error} It runs as JAX's operations.", UserWarning, stacklevel=2)
        return _lowered_to_jax(ctx, *args, kernel=kernel, batch=batch)
    _register(name, address)
    return jax.ffi.ffi_lowering(name)(ctx, *args)


def _chooses_native(kernel: Kernel, avals: Sequence[Any], batch: Batch) -> bool:
    """Whether a kernel runs as native code for arguments of these types."""
    shapes, rows = row_shapes(avals, batch), _rows(avals, batch)
    is_native = kernel.policy.chooses_native(shapes, rows)
    is_measured = kernel.policy.is_to_be_measured(shapes, rows)
    # Started before native code is written, so that XLA compiles meanwhile.
    times = _times(kernel, avals, batch) if is_measured and not kernel.no_code_yet else None
    if (is_native or is_measured) and kernel.no_code:
        kernel.policy.remark(f"JAX's operations, for {kernel.name}: {kernel.no_code}")
        return False
    if is_measured:
        is_native = is_native if times is None else times.is_native_faster
        form = "native code" if is_native else "JAX's operations"
        name = f"{rows} rows of {kernel.name}" if batch else kernel.name
        why = "by costs" if times is None else f"measured, {times.in_words()}"
        kernel.policy.remark(f"{form} for {name}: {why}")
    return is_native


def _times(kernel: Kernel, avals: Sequence[Any], batch: Batch) -> Times | None:
    """The measured times of both forms of a kernel; see `measured`."""
    policy = kernel.policy
    options = policy.checks, policy.optimize, policy.longest or 0, kernel.canonical
    types = tuple((tuple(aval.shape), str(aval.dtype)) for aval in avals)

    def fact() -> Fact:
        parts = "times", options, types, batch, conditions()
        return fact_of_rewritten(kernel.inputs, kernel.outputs, *parts)

    native = copy.copy(kernel)
    native.policy = replace(policy, prefers_native=lambda *args: True, is_close=lambda *args: False)

    def in_native(*args: Array) -> list[Any]:
        if kernel.no_code:
            raise UnsupportedOpError(kernel.no_code)
        return bind(native, args, batch)

    return measured(fact, in_native, in_jax(kernel, batch), avals)


def _rows(avals: Sequence[Any], batch: Batch) -> int:
    return math.prod(_batch_shape(avals, batch))


_REGISTERED: set[str] = set()


def _register(name: str, address: int) -> None:
    """Register a handler once: XLA accepts a name only once."""
    with TRACING:
        if name not in _REGISTERED:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform="cpu")
            _REGISTERED.add(name)


for _p in (kernel_p, kernel_jvp_p):
    _p.multiple_results = True
    _p.def_impl(_impl)
    _p.def_abstract_eval(_abstract)
    batching.primitive_batchers[_p] = _batched
    mlir.register_lowering(_p, _lowered_to_jax)
    mlir.register_lowering(_p, _lowered_to_native, platform="cpu")
