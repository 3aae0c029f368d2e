"""The primitive ``loopax_native_call``: a jaxpr, its batches, evaluation and lowering.

Every transformation of it is JAX's own transformation of its jaxpr: a batch is ``jax.vmap`` of the jaxpr, a
derivative ``jax.jvp`` and ``jax.linear_transpose`` (`derivatives`), and each gives this primitive
again. So the lowering gets a jaxpr to which all transformations have been applied. There, on the CPU,
its loops are replaced by kernels (`native_parts`); on other platforms it is lowered as JAX wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.experimental.jet import jet, jet_rules
from jax.typing import ArrayLike

from loopax.base.upstream.jax import (
    ClosedJaxpr,
    Primitive,
    batching,
    jaxpr_as_fun,
    mlir,
    owner_cache,
)
from loopax.cache import without_disk
from loopax.jax_backend.staging.checkable import Checkable
from loopax.jax_backend.staging.primitive_rules import BatchAxes
from loopax.kernels.debug_flags import check_special, without_debug_flags
from loopax.kernels.native_call.native_parts import Plan


class _NativeCall(Checkable):
    """A call whose loops stay native under checkify, which carries the errors so far like other values."""

    def bind(self, *args: Any, subfuns: Sequence[Any] = (), **params: Any) -> Any:
        if not subfuns:
            return super().bind(*args, **params)
        jaxpr, operands, _ = traced_call(subfuns[0].call_wrapped, args)
        return bind(jaxpr, operands, params["plan"])


native_call_p = _NativeCall("loopax_native_call")


def bind(jaxpr: ClosedJaxpr, args: Sequence[Any], plan: Plan, n_tangents: int = 0) -> list[Any]:
    """Bind a closed jaxpr as one equation, or evaluate it if it has effects.

    Its last ``n_tangents`` inputs are tangents. A derivative may have effects that the function lacks: a
    rule of ``jax.custom_vjp``, traced when the function is differentiated, may print, call back or write to
    a reference.
    """
    if jaxpr.effects:
        return jaxpr_as_fun(jaxpr)(*args)
    return native_call_p.bind(*args, call_jaxpr=jaxpr, plan=plan, n_tangents=n_tangents)


def trace_jaxpr(function: Callable[..., Sequence[Any]], avals: Sequence[ShapedArray]) -> Any:
    """Trace ``function``, from flat lists to flat lists, for arguments of these types."""
    return jax.make_jaxpr(lambda *args: list(function(*args)))(*avals)


def traced_call(f: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Any], Any]:
    """Trace ``f(*args)``: the jaxpr, its operands, and the structure of its results.

    Constants may be tracers of the caller, and so become operands.
    """
    jaxpr, shapes = jax.make_jaxpr(f, return_shape=True)(*args)
    consts = list(jaxpr.consts)
    operands = [*consts, *args]
    if consts:
        n, opened = len(consts), jaxpr.jaxpr
        jaxpr = jax.make_jaxpr(lambda *xs: jax.core.eval_jaxpr(opened, xs[:n], *xs[n:]))(
            *map(jax.typeof, operands)
        )
    return jaxpr, operands, shapes


@owner_cache
def _compiled(plan: Plan, jaxpr: ClosedJaxpr) -> Any:
    return jax.jit(lambda *args: bind(jaxpr, args, plan))


def _impl(*args: ArrayLike, call_jaxpr: ClosedJaxpr, plan: Plan, n_tangents: int) -> Any:
    with without_debug_flags():
        outs = _compiled(plan, call_jaxpr)(*args)
    check_special("a native function", [x for x in outs if jnp.issubdtype(x.dtype, jnp.inexact)])
    return outs


def _abstract(*args: ShapedArray, call_jaxpr: ClosedJaxpr, plan: Plan, n_tangents: int) -> Any:
    return call_jaxpr.out_avals


# -- batches ---------------------------------------------------------------------------------------


def _batched(
    axis: Any,
    args: Sequence[jax.Array],
    axes: BatchAxes,
    *,
    call_jaxpr: ClosedJaxpr,
    plan: Plan,
    n_tangents: int,
) -> Any:
    avals = tuple(jax.typeof(x) for x in args)
    jaxpr, out_axes = _batched_jaxpr(plan, call_jaxpr, avals, tuple(axes), axis.size, axis.name)
    return bind(jaxpr, args, plan, n_tangents), out_axes


@owner_cache
def _batched_jaxpr(
    plan: Plan,
    jaxpr: ClosedJaxpr,
    avals: tuple[ShapedArray, ...],
    axes: tuple[int | None, ...],
    size: int,
    name: object,
) -> tuple[Any, list[int | None]]:
    """Batch the jaxpr along the axis ``name``; also return the batch axis of each output.

    The axes stay where JAX's rules put them. If they came first, a trace of 64 rows, whose first axis are
    the steps, would be copied at the end of a loop, and again before the loop that reads it.
    """
    out_axes: list[int | None] = []

    def whole(*args: jax.Array) -> list[Any]:
        outs: list[Any] = []  # not kept beyond the trace that they belong to

        def record(values: Sequence[jax.Array], axes: BatchAxes) -> None:
            outs[:], out_axes[:] = values, axes

        def row(*args: jax.Array) -> list[Any]:
            _recorded_p.bind(*jaxpr_as_fun(jaxpr)(*args), record=record)
            return []

        jax.vmap(row, in_axes=axes, axis_size=size, axis_name=name)(*args)
        return outs

    return trace_jaxpr(whole, avals), out_axes


def _record(
    axis_data: object, values: Sequence[jax.Array], axes: BatchAxes, *, record: Callable[..., None]
) -> Any:
    record(values, axes)
    return [], []


# The values that a function under ``jax.vmap`` computes, with their axes, before `jax.vmap` moves them.
_recorded_p = Primitive("loopax_recorded")
_recorded_p.multiple_results = True
batching.fancy_primitive_batchers[_recorded_p] = _record


# -- Taylor series ---------------------------------------------------------------------------------


def _jet(primals: Sequence[Any], series: Sequence[Any], **params: Any) -> Any:
    """The Taylor series of the call, in JAX's operations: JAX has no rule for loops."""
    return jet(jaxpr_as_fun(params["call_jaxpr"]), primals, series, factorial_scaled=False)


# -- lowering --------------------------------------------------------------------------------------


def _lowered(
    ctx: mlir.LoweringRuleContext,
    *args: object,
    call_jaxpr: ClosedJaxpr,
    plan: Plan,
    n_tangents: int,
) -> Any:
    return mlir.lower_fun(jaxpr_as_fun(call_jaxpr), multiple_results=True)(ctx, *args)


def _lowered_on_cpu(
    ctx: mlir.LoweringRuleContext,
    *args: object,
    call_jaxpr: ClosedJaxpr,
    plan: Plan,
    n_tangents: int,
) -> Any:
    module = ctx.module_context
    # The partitioner cannot divide a call of native code: each device would run all of it.
    is_partitioned = getattr(module.axis_context, "num_devices", 1) > 1
    if is_partitioned and plan.loops != "xla":
        plan.remarks["all loops: JAX's: the program is divided between devices"] = None
    if is_partitioned or module.lowering_parameters.for_export:
        return _lowered(ctx, *args, call_jaxpr=call_jaxpr, plan=plan, n_tangents=n_tangents)
    with nullcontext() if plan.cache else without_disk():
        native = plan.with_native_parts(call_jaxpr)
        return mlir.lower_fun(jaxpr_as_fun(native), multiple_results=True)(ctx, *args)


native_call_p.multiple_results = True
native_call_p.def_impl(_impl)
native_call_p.def_abstract_eval(_abstract)
batching.fancy_primitive_batchers[native_call_p] = _batched
jet_rules[native_call_p] = cast(Any, _jet)
mlir.register_lowering(native_call_p, _lowered)
mlir.register_lowering(native_call_p, _lowered_on_cpu, platform="cpu")
