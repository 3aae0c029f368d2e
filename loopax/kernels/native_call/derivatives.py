"""The rules of `native_call`'s derivatives: JAX's own rules, applied to its jaxpr.

Forwards it is the jaxpr of ``jax.jvp``. Backwards JAX's partial evaluation divides the jaxpr, as it
does that of a ``jax.jit``: a part that does not read the tangents is computed first, and the linear
part is transposed by ``jax.linear_transpose``. Each rule traces once for each jaxpr.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax.api_util import debug_info

from loopax.base.upstream.jax import ClosedJaxpr, JaxprEqn, Var, ad, jaxpr_as_fun, wrap_init
from loopax.base.upstream.jax import partial_eval as pe
from loopax.ir.sequences import with_items
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind, native_call_p, trace_jaxpr

Flags = tuple[bool, ...]


# -- forwards --------------------------------------------------------------------------------------


def _jvp(primals: Any, tangents: Any, *, call_jaxpr: Any, plan: Plan) -> Any:
    moving = tuple(type(t) is not ad.Zero and _has_tangent(jax.typeof(t)) for t in tangents)
    jaxpr, out_positions = _jvp_jaxpr(call_jaxpr, moving)
    outs = bind(jaxpr, [*primals, *(t for t, m in zip(tangents, moving, strict=True) if m)], plan)
    values, dots = outs[: len(call_jaxpr.out_avals)], outs[len(call_jaxpr.out_avals) :]
    zeros = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in values]
    return values, with_items(zeros, out_positions, dots)


@lru_cache(maxsize=512)
def _jvp_jaxpr(jaxpr: Any, moving: Flags) -> tuple[Any, list[int]]:
    """``[*inputs, *tangents] -> [*outputs, *tangents]``, and the outputs whose tangent may not be 0."""
    n, positions = len(jaxpr.in_avals), [k for k, m in enumerate(moving) if m]
    floats = [k for k, aval in enumerate(jaxpr.out_avals) if _has_tangent(aval.to_tangent_aval())]

    def both(*args: Any, floats: Sequence[int]) -> list[Any]:
        primals, tangents = args[:n], args[n:]

        def primal_function(*moving_primals: Any) -> Any:
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


def _depends(jaxpr: Any, output: int, first_tangent: int) -> bool:
    """Whether an output reads an input from ``first_tangent`` on: if not, its tangent is zero."""
    is_wanted = [k == output for k in range(len(jaxpr.out_avals))]
    _, is_read = pe.dce_jaxpr(jaxpr.jaxpr, is_wanted)
    return any(is_read[first_tangent:])


def _has_tangent(aval: Any) -> bool:
    return aval.dtype != jax.dtypes.float0


# -- partial evaluation ----------------------------------------------------------------------------


class Divided(NamedTuple):
    """A jaxpr divided by partial evaluation.

    ``known`` maps the known inputs to the known outputs and ``n_residuals`` residuals; ``unknown``
    maps these residuals and the unknown inputs to the other outputs.
    """

    known: Any
    unknown: Any
    is_known: list[bool]
    n_residuals: int


@lru_cache(maxsize=512)
def _divided(jaxpr: Any, unknown: Flags) -> Divided:
    unknown_part: list[Any] = []

    def run(*args: Any) -> list[Any]:
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

    known_jaxpr = trace_jaxpr(run, _selected(jaxpr.in_avals, unknown, False))
    unknown_jaxpr, is_known, types = unknown_part
    n = len(types)
    closed_jaxpr = trace_jaxpr(
        lambda *args: jax.core.eval_jaxpr(unknown_jaxpr, args[:n], *args[n:]),
        [*types, *_selected(jaxpr.in_avals, unknown, True)],
    )
    return Divided(known_jaxpr, closed_jaxpr, is_known, n)


def _selected(xs: Sequence[Any], flags: Sequence[bool], value: bool) -> list[Any]:
    return [x for x, flag in zip(xs, flags, strict=True) if flag == value]


def _split(trace: Any, *tracers: Any, call_jaxpr: Any, plan: Plan) -> list[Any]:
    """Partial evaluation, for ``jax.linearize`` and ``jax.grad``."""
    unknown = tuple(not t.is_known() for t in tracers)
    divided = _divided(call_jaxpr, unknown)
    known_values = [t.pval.get_known() for t in _selected(tracers, unknown, False)]
    outs = bind(divided.known, known_values, plan)
    n = len(outs) - divided.n_residuals
    unknown_outs: list[Any] = []
    if not all(divided.is_known):
        residuals = [trace.new_instantiated_const(x) for x in outs[n:]]
        unknown_outs = trace.default_process_primitive(
            native_call_p,
            [*residuals, *_selected(tracers, unknown, True)],
            {"call_jaxpr": divided.unknown, "plan": plan},
        )
    values = iter(outs[:n]), iter(unknown_outs)
    return [next(values[0 if known else 1]) for known in divided.is_known]


def _split_equation(saveable: Any, unknown: Any, instantiated: Any, eqn: JaxprEqn) -> Any:
    """`_split` for ``jax.checkpoint``, which computes the values again before it transposes.

    Returns the equation for the first run, the one for later, which outputs only the latter gives, which it
    gives at all, and the inputs to instantiate. Values that the policy of the checkpoint saves are computed
    again all the same.
    """
    n = len(eqn.outvars)
    missing = [
        v for v, has in zip(eqn.invars, instantiated, strict=True) if isinstance(v, Var) and not has
    ]
    if not any(unknown):
        return eqn, eqn, [False] * n, [True] * n, missing
    divided = _divided(eqn.params["call_jaxpr"], tuple(unknown))
    if not any(divided.is_known):
        return None, eqn, [True] * n, [True] * n, missing
    n_known = sum(divided.is_known)
    is_used = [k < n_known for k in range(n_known + divided.n_residuals)]
    values, is_read = _pruned(divided.known, tuple(is_used))
    known_eqn = eqn.replace(
        invars=_selected(_selected(eqn.invars, unknown, False), is_read, True),
        outvars=_selected(eqn.outvars, divided.is_known, True),
        params={**eqn.params, "call_jaxpr": values},
    )
    return known_eqn, eqn, [not known for known in divided.is_known], [True] * n, missing


@lru_cache(maxsize=512)
def _pruned(jaxpr: Any, is_used: Flags) -> tuple[Any, list[bool]]:
    """The jaxpr of the used outputs alone, and which of its inputs it reads."""
    pruned, is_read = pe.dce_jaxpr(jaxpr.jaxpr, list(is_used))
    return ClosedJaxpr(pruned, jaxpr.consts), list(is_read)


def _without_unused(is_used: Sequence[bool], *live_and_equation: Any) -> Any:
    """A flag for each input that the used outputs read, and the equation of these outputs.

    JAX 0.12 passes the references that are read before the equation: there are none here.
    """
    eqn: JaxprEqn = live_and_equation[-1]
    if not any(is_used):
        return [False] * len(eqn.invars), None
    if all(is_used):
        return [True] * len(eqn.invars), eqn
    jaxpr, is_read = _pruned(eqn.params["call_jaxpr"], tuple(is_used))
    pruned = eqn.replace(
        invars=_selected(eqn.invars, is_read, True),
        outvars=_selected(eqn.outvars, is_used, True),
        params={**eqn.params, "call_jaxpr": jaxpr},
    )
    return is_read, pruned


# -- backwards -------------------------------------------------------------------------------------


def _transpose(cotangents: Any, *args: Any, call_jaxpr: Any, plan: Plan) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(x) for x in args)
    has_cotangent = tuple(type(ct) is not ad.Zero for ct in cotangents)
    in_cotangents: list[Any] = [None] * len(args)
    if any(has_cotangent):
        jaxpr = _transposed(call_jaxpr, linear, has_cotangent)
        operands = [*_selected(args, linear, False), *_selected(cotangents, has_cotangent, True)]
        positions = [k for k, is_linear in enumerate(linear) if is_linear]
        in_cotangents = with_items(in_cotangents, positions, bind(jaxpr, operands, plan))
    return in_cotangents


@lru_cache(maxsize=512)
def _transposed(jaxpr: Any, linear: Flags, has_cotangent: Flags) -> Any:
    """``[*other inputs, *cotangents] -> cotangents of the linear inputs``."""
    positions = [k for k, is_linear in enumerate(linear) if is_linear]
    n = len(linear) - len(positions)

    def run(*args: Any) -> Any:
        nonlinear = iter(args[:n])
        full = [None if is_linear else next(nonlinear) for is_linear in linear]

        def linear_function(*tangents: Any) -> list[Any]:
            return _selected(
                jaxpr_as_fun(jaxpr)(*with_items(full, positions, tangents)), has_cotangent, True
            )

        pull = jax.linear_transpose(linear_function, *_selected(jaxpr.in_avals, linear, True))
        return pull(list(args[n:]))

    cotangents = [
        aval.to_tangent_aval() for aval in _selected(jaxpr.out_avals, has_cotangent, True)
    ]
    return trace_jaxpr(run, [*_selected(jaxpr.in_avals, linear, False), *cotangents])


ad.primitive_jvps[native_call_p] = _jvp
ad.primitive_transposes[native_call_p] = _transpose
pe.custom_partial_eval_rules[native_call_p] = _split
pe.partial_eval_jaxpr_custom_rules[native_call_p] = _split_equation
pe.dce_rules[native_call_p] = _without_unused
