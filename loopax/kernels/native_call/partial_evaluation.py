"""Partial evaluation of `native_call`, on which JAX's reverse mode relies.

As for ``jax.jit``, it splits the jaxpr: the part that does not read the tangents is computed first, with
the residuals that the rest reads. Where the rest gives one number, linear in the tangents, its gradient
is computed first, and is the residual: value and gradient are then one program, which is lowered and
measured as a whole, and whose traces need not be returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.api_util import debug_info

from loopax.base.upstream.jax import (
    ClosedJaxpr,
    JaxprEqn,
    Primitive,
    jaxpr_as_fun,
    owner_cache,
    wrap_init,
)
from loopax.base.upstream.jax import partial_eval as pe
from loopax.jax_backend.staging.primitive_rules import division_for_checkpoint
from loopax.kernels.native_call.derivatives import Flags, selected, transposed
from loopax.kernels.native_call.functional import Functional, functional_p
from loopax.kernels.native_call.linearity import is_linear
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind, native_call_p, trace_jaxpr
from loopax.numerics import manual_axes


class Divided(NamedTuple):
    """A jaxpr split by partial evaluation.

    ``known`` maps the known inputs to the known outputs and ``n_residuals`` residuals; ``unknown``
    maps these residuals and the unknown inputs to the other outputs. If it is a ``functional``, the
    residuals are its gradient.
    """

    known: Any
    unknown: Any
    is_known: list[bool]
    n_residuals: int
    functional: Functional | None = None


@owner_cache
def _divided(plan: Plan, jaxpr: ClosedJaxpr, unknown: Flags, is_of_tangents: bool) -> Divided:
    divided = _partially_evaluated(plan, jaxpr, unknown)
    if not (is_of_tangents and _is_real_functional(divided)):
        return divided
    n, n_tangents = divided.n_residuals, len(divided.unknown.in_avals) - divided.n_residuals
    linear = (False,) * n + (True,) * n_tangents
    try:
        pullback = transposed(plan, divided.unknown, linear, (True,))
    except Exception:
        # There is no transpose, as for a while loop. ``jax.linearize`` needs none, and `_transpose` raises.
        return divided
    return _with_gradient(divided, pullback, plan) if is_linear(pullback) else divided


@owner_cache
def _partially_evaluated(plan: Plan, jaxpr: ClosedJaxpr, unknown: Flags) -> Divided:
    unknown_part: list[Any] = []

    def run(*args: jax.Array) -> list[Any]:
        values = iter(args)
        pvals = [
            pe.PartialVal.unknown(aval) if u else pe.PartialVal.known(next(values))
            for aval, u in zip(jaxpr.in_avals, unknown, strict=True)
        ]
        function = jaxpr_as_fun(jaxpr)
        info = debug_info("native", function, jaxpr.in_avals, {})
        unknown_jaxpr, out_pvals, residuals = pe.trace_to_jaxpr_nounits(
            wrap_init(function, debug_info=info), pvals, instantiate=False
        )
        unknown_part[:] = [
            unknown_jaxpr,
            [pv.is_known() for pv in out_pvals],
            [jax.typeof(x) for x in residuals],
        ]
        return [*(pv.get_known() for pv in out_pvals if pv.is_known()), *residuals]

    known_jaxpr = trace_jaxpr(run, selected(jaxpr.in_avals, unknown, False))
    unknown_jaxpr, is_known, types = unknown_part
    n = len(types)
    closed_jaxpr = trace_jaxpr(
        lambda *args: jax.core.eval_jaxpr(unknown_jaxpr, args[:n], *args[n:]),
        [*types, *selected(jaxpr.in_avals, unknown)],
    )
    return Divided(known_jaxpr, closed_jaxpr, is_known, n)


def _is_real_functional(divided: Divided) -> bool:
    """Whether the unknown part is a map from real numbers to one real number.

    In ``jax.shard_map``, neither may vary between devices: the gradient of an argument that is the same
    on all of them is a sum over devices, whose summands belong to different cotangents.
    """
    avals = [*divided.unknown.in_avals[divided.n_residuals :], *divided.unknown.out_avals]
    is_number = [aval.shape for aval in divided.unknown.out_avals] == [()]
    is_real = all(jnp.issubdtype(aval.dtype, jnp.floating) for aval in avals)
    return is_number and is_real and not manual_axes.all_axes(avals)


def _with_gradient(divided: Divided, pullback: ClosedJaxpr, plan: Plan) -> Divided:
    """Make the gradient of the linear unknown part, its ``pullback`` of 1, its residuals."""
    n, (number,) = divided.n_residuals, divided.unknown.out_avals
    tangents = divided.unknown.in_avals[n:]
    n_values = len(divided.known.in_avals)

    def with_residuals(values: Sequence[jax.Array]) -> tuple[list[Any], list[Any]]:
        outs = jaxpr_as_fun(divided.known)(*values)
        return outs[: len(outs) - n], outs[len(outs) - n :]

    def known(*values: jax.Array) -> list[Any]:
        outs, residuals = with_residuals(values)
        return [*outs, *jaxpr_as_fun(pullback)(*residuals, jnp.ones((), number.dtype))]

    def from_values(*args: jax.Array) -> list[Any]:
        _, residuals = with_residuals(args[:n_values])
        return jaxpr_as_fun(divided.unknown)(*residuals, *args[n_values:])

    functional = Functional(
        pullback.out_avals, divided.known.in_avals, tangents, from_values, number, plan
    )
    known_jaxpr = trace_jaxpr(known, divided.known.in_avals)
    return Divided(known_jaxpr, None, divided.is_known, len(tangents), functional)


def _split(
    trace: Any, *tracers: pe.JaxprTracer, call_jaxpr: ClosedJaxpr, plan: Plan, n_tangents: int
) -> list[Any]:
    """Partial evaluation, for ``jax.linearize`` and ``jax.grad``."""
    unknown = tuple(not t.is_known() for t in tracers)
    is_of_tangents = unknown == (False,) * (len(unknown) - n_tangents) + (True,) * n_tangents
    divided = _divided(plan, call_jaxpr, unknown, is_of_tangents)
    known_values = [t.pval.get_known() for t in selected(tracers, unknown, False)]
    outs = bind(divided.known, known_values, plan)
    n = len(outs) - divided.n_residuals
    unknown_outs: list[Any] = []
    if not all(divided.is_known):
        primitive: Primitive = native_call_p
        params = {
            "call_jaxpr": divided.unknown,
            "plan": plan,
            "n_tangents": n_tangents if is_of_tangents else 0,
        }
        residuals = outs[n:]
        if divided.functional is not None:
            primitive, params = functional_p, {"of": divided.functional}
            residuals = [*residuals, *known_values]
        constants = map(trace.new_instantiated_const, residuals)
        operands = [*constants, *selected(tracers, unknown)]
        unknown_outs = trace.default_process_primitive(primitive, operands, params)
    values = iter(outs[:n]), iter(unknown_outs)
    return [next(values[0 if known else 1]) for known in divided.is_known]


def _split_equation(
    saveable: object, unknown: Sequence[bool], instantiated: Sequence[bool], eqn: JaxprEqn
) -> Any:
    """Apply `_split` under ``jax.checkpoint``: see `division_for_checkpoint`."""
    n = len(eqn.outvars)
    if not any(unknown):
        return division_for_checkpoint(eqn, instantiated, eqn, [False] * n)
    plan: Plan = eqn.params["plan"]
    divided = _partially_evaluated(plan, eqn.params["call_jaxpr"], tuple(unknown))
    if not any(divided.is_known):
        return division_for_checkpoint(eqn, instantiated, None, [True] * n)
    n_known = sum(divided.is_known)
    is_used = [k < n_known for k in range(n_known + divided.n_residuals)]
    values, is_read = _pruned(plan, divided.known, tuple(is_used))
    known_eqn = eqn.replace(
        invars=selected(selected(eqn.invars, unknown, False), is_read),
        outvars=selected(eqn.outvars, divided.is_known),
        params={**eqn.params, "call_jaxpr": values, "n_tangents": 0},
    )
    is_later = [not known for known in divided.is_known]
    return division_for_checkpoint(eqn, instantiated, known_eqn, is_later)


@owner_cache
def _pruned(plan: Plan, jaxpr: ClosedJaxpr, is_used: Flags) -> tuple[Any, list[bool]]:
    """The jaxpr of the used outputs alone, and which of its inputs it reads."""
    pruned, is_read = pe.dce_jaxpr(jaxpr.jaxpr, list(is_used))
    return ClosedJaxpr(pruned, jaxpr.consts), list(is_read)


def _without_unused(is_used: Sequence[bool], *live_and_equation: Any) -> Any:
    """Flags for the inputs that the used outputs need, and the equation of these outputs.

    JAX 0.12 also passes the references that are read before the equation: there are none here.
    """
    eqn: JaxprEqn = live_and_equation[-1]
    if not any(is_used):
        return [False] * len(eqn.invars), None
    if all(is_used):
        return [True] * len(eqn.invars), eqn
    jaxpr, is_read = _pruned(eqn.params["plan"], eqn.params["call_jaxpr"], tuple(is_used))
    n_tangents = sum(is_read[len(is_read) - eqn.params["n_tangents"] :])
    pruned = eqn.replace(
        invars=selected(eqn.invars, is_read),
        outvars=selected(eqn.outvars, is_used),
        params={**eqn.params, "call_jaxpr": jaxpr, "n_tangents": n_tangents},
    )
    return is_read, pruned


pe.custom_partial_eval_rules[native_call_p] = _split
pe.partial_eval_jaxpr_custom_rules[native_call_p] = _split_equation
pe.dce_rules[native_call_p] = _without_unused
