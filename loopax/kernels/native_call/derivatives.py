"""Derivatives of `native_call`: JAX's own rules, applied to its jaxpr.

The forward derivative is the jaxpr of ``jax.jvp``. For the backward derivative it is split
(`partial_evaluation`), and the part that is linear in the tangents is transposed by
``jax.linear_transpose``. Each rule traces once for each jaxpr.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray

from loopax.base.upstream.jax import ClosedJaxpr, ad, jaxpr_as_fun, owner_cache
from loopax.base.upstream.jax import partial_eval as pe
from loopax.ir.sequences import with_items
from loopax.jax_backend.staging.primitive_rules import Operand, Tangents
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind, native_call_p, trace_jaxpr

Flags = tuple[bool, ...]


def selected(xs: Sequence[Any], flags: Sequence[bool], value: bool = True) -> list[Any]:
    """The items whose flag is ``value``."""
    return [x for x, flag in zip(xs, flags, strict=True) if flag == value]


# -- forwards --------------------------------------------------------------------------------------


def _jvp(
    primals: Sequence[jax.Array],
    tangents: Tangents,
    *,
    call_jaxpr: ClosedJaxpr,
    plan: Plan,
    n_tangents: int,
) -> Any:
    moving = tuple(type(t) is not ad.Zero and _has_tangent(jax.typeof(t)) for t in tangents)
    jaxpr, out_positions = _jvp_jaxpr(plan, call_jaxpr, moving)
    moving_tangents = selected(tangents, moving)
    outs = bind(jaxpr, [*primals, *moving_tangents], plan, len(moving_tangents))
    values, dots = outs[: len(call_jaxpr.out_avals)], outs[len(call_jaxpr.out_avals) :]
    zeros = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in values]
    return values, with_items(zeros, out_positions, dots)


@owner_cache
def _jvp_jaxpr(plan: Plan, jaxpr: ClosedJaxpr, moving: Flags) -> tuple[Any, list[int]]:
    """Trace ``[*inputs, *tangents] -> [*outputs, *tangents]``, and list outputs with nonzero tangents."""
    n, positions = len(jaxpr.in_avals), [k for k, m in enumerate(moving) if m]
    floats = [k for k, aval in enumerate(jaxpr.out_avals) if _has_tangent(aval.to_tangent_aval())]

    def both(*args: jax.Array, floats: Sequence[int]) -> list[Any]:
        primals, tangents = args[:n], args[n:]

        def primal_function(*moving_primals: jax.Array) -> Any:
            return jaxpr_as_fun(jaxpr)(*with_items(primals, positions, moving_primals))

        outs, dots = jax.jvp(primal_function, [primals[k] for k in positions], list(tangents))
        return [*outs, *(dots[k] for k in floats)]

    avals = [*jaxpr.in_avals, *(jaxpr.in_avals[k].to_tangent_aval() for k in positions)]
    joint = trace_jaxpr(lambda *args: both(*args, floats=floats), avals)
    out_positions = [
        k for j, k in enumerate(floats) if _depends(joint, len(jaxpr.out_avals) + j, n)
    ]
    if out_positions != floats:
        joint = trace_jaxpr(lambda *args: both(*args, floats=out_positions), avals)
    return joint, out_positions


def _depends(jaxpr: ClosedJaxpr, output: int, first_tangent: int) -> bool:
    """Whether an output depends on an input from ``first_tangent`` on: if not, its tangent is zero."""
    is_wanted = [k == output for k in range(len(jaxpr.out_avals))]
    _, is_read = pe.dce_jaxpr(jaxpr.jaxpr, is_wanted)
    return any(is_read[first_tangent:])


def _has_tangent(aval: ShapedArray) -> bool:
    return aval.dtype != jax.dtypes.float0


# -- backwards -------------------------------------------------------------------------------------


def _transpose(
    cotangents: Tangents, *args: Operand, call_jaxpr: ClosedJaxpr, plan: Plan, n_tangents: int
) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(x) for x in args)
    has_cotangent = tuple(type(ct) is not ad.Zero for ct in cotangents)
    in_cotangents: list[Any] = [None] * len(args)
    if any(has_cotangent):
        jaxpr = transposed(plan, call_jaxpr, linear, has_cotangent)
        operands = [*selected(args, linear, False), *selected(cotangents, has_cotangent)]
        positions = [k for k, is_linear in enumerate(linear) if is_linear]
        in_cotangents = with_items(in_cotangents, positions, bind(jaxpr, operands, plan))
    return in_cotangents


@owner_cache
def transposed(plan: Plan, jaxpr: ClosedJaxpr, linear: Flags, has_cotangent: Flags) -> Any:
    """Transpose to ``[*other inputs, *cotangents] -> cotangents of the linear inputs``."""
    positions = [k for k, is_linear in enumerate(linear) if is_linear]
    n = len(linear) - len(positions)

    def run(*args: jax.Array) -> Any:
        nonlinear = iter(args[:n])
        full = [None if is_linear else next(nonlinear) for is_linear in linear]

        def linear_function(*tangents: jax.Array) -> list[Any]:
            outs = jaxpr_as_fun(jaxpr)(*with_items(full, positions, tangents))
            return selected(outs, has_cotangent)

        pull = jax.linear_transpose(linear_function, *selected(jaxpr.in_avals, linear))
        return pull(list(args[n:]))

    cotangents = [aval.to_tangent_aval() for aval in selected(jaxpr.out_avals, has_cotangent)]
    return trace_jaxpr(run, [*selected(jaxpr.in_avals, linear, False), *cotangents])


ad.primitive_jvps[native_call_p] = _jvp
ad.primitive_transposes[native_call_p] = _transpose
