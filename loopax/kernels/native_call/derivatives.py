"""The rules of `native_call`'s derivatives: JAX's own, of its jaxpr.

Forwards it is the jaxpr of ``jax.jvp``. Backwards JAX computes first what does not read the tangents and
keeps what is linear in them: a jaxpr is divided so by JAX's partial evaluation, as that of a ``jax.jit``
is, and what is linear is transposed by ``jax.linear_transpose``. Each rule traces once for each jaxpr.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax.api_util import debug_info

from loopax.base.upstream.jax import ClosedJaxpr, JaxprEqn, Var, ad, jaxpr_as_fun, wrap_init
from loopax.base.upstream.jax import partial_eval as pe
from loopax.ir.places import with_items
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind, native_call_p, trace_jaxpr

Flags = tuple[bool, ...]


# -- forwards --------------------------------------------------------------------------------------


def _jvp(primals: Any, tangents: Any, *, call_jaxpr: Any, plan: Plan) -> Any:
    moving = tuple(type(t) is not ad.Zero and _has_tangent(jax.typeof(t)) for t in tangents)
    jaxpr, moved = _jvp_jaxpr(call_jaxpr, moving)
    outs = bind(jaxpr, [*primals, *(t for t, m in zip(tangents, moving, strict=True) if m)], plan)
    values, dots = outs[: len(call_jaxpr.out_avals)], outs[len(call_jaxpr.out_avals) :]
    zeros = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in values]
    return values, with_items(zeros, moved, dots)


@lru_cache(maxsize=512)
def _jvp_jaxpr(jaxpr: Any, moving: Flags) -> tuple[Any, list[int]]:
    """``[*inputs, *tangents] -> [*outputs, *tangents]``, and the outputs whose tangent may not be 0."""
    n, places = len(jaxpr.in_avals), [k for k, m in enumerate(moving) if m]
    floats = [k for k, aval in enumerate(jaxpr.out_avals) if _has_tangent(aval.to_tangent_aval())]

    def both(*args: Any, of: Sequence[int]) -> list[Any]:
        primals, tangents = args[:n], args[n:]

        def at(*some: Any) -> Any:
            return jaxpr_as_fun(jaxpr)(*with_items(primals, places, some))

        outs, dots = jax.jvp(at, [primals[k] for k in places], list(tangents))
        return [*outs, *(dots[k] for k in of)]

    avals = [*jaxpr.in_avals, *(jaxpr.in_avals[k].to_tangent_aval() for k in places)]
    whole = trace_jaxpr(lambda *args: both(*args, of=floats), avals)
    moved = [k for j, k in enumerate(floats) if _depends(whole, len(jaxpr.out_avals) + j, n)]
    if moved != floats:
        whole = trace_jaxpr(lambda *args: both(*args, of=moved), avals)
    return whole, moved


def _depends(jaxpr: Any, output: int, first: int) -> bool:
    """Whether an output reads any of the inputs from ``first`` on: a tangent that does not is zero."""
    wanted = [k == output for k in range(len(jaxpr.out_avals))]
    _, used = pe.dce_jaxpr(jaxpr.jaxpr, wanted)
    return any(used[first:])


def _has_tangent(aval: Any) -> bool:
    return aval.dtype != jax.dtypes.float0


# -- what is known, and what is not ----------------------------------------------------------------


class Divided(NamedTuple):
    """A jaxpr by what is known.

    ``known``, of the known inputs, gives the known outputs and what the rest needs of it (``n_residuals``);
    ``unknown``, of these residuals and the unknown inputs, gives the other outputs.
    """

    known: Any
    unknown: Any
    is_known: list[bool]
    n_residuals: int


@lru_cache(maxsize=512)
def _divided(jaxpr: Any, unknown: Flags) -> Divided:
    later: list[Any] = []

    def run(*args: Any) -> list[Any]:
        values = iter(args)
        pvals = [
            pe.PartialVal.unknown(aval) if u else pe.PartialVal.known(next(values))
            for aval, u in zip(jaxpr.in_avals, unknown, strict=True)
        ]
        function = jaxpr_as_fun(jaxpr)
        info = debug_info("native", function, jaxpr.in_avals, {})
        rest, out_pvals, residuals = pe.trace_to_jaxpr_nounits(
            wrap_init(function, debug_info=info), pvals, instantiate=False
        )
        later[:] = [rest, [pv.is_known() for pv in out_pvals], [jax.typeof(x) for x in residuals]]
        return [*(pv.get_known() for pv in out_pvals if pv.is_known()), *residuals]

    known = trace_jaxpr(run, _those(jaxpr.in_avals, unknown, False))
    rest, is_known, types = later
    n = len(types)
    of_all = trace_jaxpr(
        lambda *args: jax.core.eval_jaxpr(rest, args[:n], *args[n:]),
        [*types, *_those(jaxpr.in_avals, unknown, True)],
    )
    return Divided(known, of_all, is_known, n)


def _those(xs: Sequence[Any], flags: Sequence[bool], wanted: bool) -> list[Any]:
    return [x for x, flag in zip(xs, flags, strict=True) if flag == wanted]


def _split(trace: Any, *tracers: Any, call_jaxpr: Any, plan: Plan) -> list[Any]:
    """By JAX's partial evaluation, ``jax.linearize`` and ``jax.grad``."""
    unknown = tuple(not t.is_known() for t in tracers)
    divided = _divided(call_jaxpr, unknown)
    given = [t.pval.get_known() for t in _those(tracers, unknown, False)]
    outs = bind(divided.known, given, plan)
    n = len(outs) - divided.n_residuals
    rest: list[Any] = []
    if not all(divided.is_known):
        residuals = [trace.new_instantiated_const(x) for x in outs[n:]]
        rest = trace.default_process_primitive(
            native_call_p,
            [*residuals, *_those(tracers, unknown, True)],
            {"call_jaxpr": divided.unknown, "plan": plan},
        )
    values = iter(outs[:n]), iter(rest)
    return [next(values[0 if known else 1]) for known in divided.is_known]


def _split_equation(saveable: Any, unknown: Any, instantiated: Any, eqn: JaxprEqn) -> Any:
    """`_split` for ``jax.checkpoint``, which computes the values again before it transposes what is left.

    Returns what is computed at first, what is computed later, which outputs only the latter gives, and
    which it gives at all; and the inputs that it needs beside those that it has. What may be saved by the
    policy of the checkpoint is computed again all the same.
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
    used = [k < n_known for k in range(n_known + divided.n_residuals)]
    values, read = _pruned(divided.known, tuple(used))
    first = eqn.replace(
        invars=_those(_those(eqn.invars, unknown, False), read, True),
        outvars=_those(eqn.outvars, divided.is_known, True),
        params={**eqn.params, "call_jaxpr": values},
    )
    return first, eqn, [not known for known in divided.is_known], [True] * n, missing


@lru_cache(maxsize=512)
def _pruned(jaxpr: Any, used: Flags) -> tuple[Any, list[bool]]:
    """The jaxpr of these outputs alone, and which of its inputs it reads."""
    pruned, read = pe.dce_jaxpr(jaxpr.jaxpr, list(used))
    return ClosedJaxpr(pruned, jaxpr.consts), list(read)


def _without_unused(used: Sequence[bool], *live_and_equation: Any) -> Any:
    """Which inputs the outputs that are used need, and the equation of these.

    JAX 0.12 says before the equation which of its references somebody reads: there are none here.
    """
    eqn: JaxprEqn = live_and_equation[-1]
    if not any(used):
        return [False] * len(eqn.invars), None
    if all(used):
        return [True] * len(eqn.invars), eqn
    jaxpr, read = _pruned(eqn.params["call_jaxpr"], tuple(used))
    pruned = eqn.replace(
        invars=_those(eqn.invars, read, True),
        outvars=_those(eqn.outvars, used, True),
        params={**eqn.params, "call_jaxpr": jaxpr},
    )
    return read, pruned


# -- backwards -------------------------------------------------------------------------------------


def _transpose(cotangents: Any, *args: Any, call_jaxpr: Any, plan: Plan) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(x) for x in args)
    arrived = tuple(type(ct) is not ad.Zero for ct in cotangents)
    found: list[Any] = [None] * len(args)
    if any(arrived):
        jaxpr = _transposed(call_jaxpr, linear, arrived)
        given = [*_those(args, linear, False), *_those(cotangents, arrived, True)]
        places = [k for k, is_linear in enumerate(linear) if is_linear]
        found = with_items(found, places, bind(jaxpr, given, plan))
    return found


@lru_cache(maxsize=512)
def _transposed(jaxpr: Any, linear: Flags, arrived: Flags) -> Any:
    """``[*other inputs, *cotangents] -> cotangents of the linear inputs``."""
    places = [k for k, is_linear in enumerate(linear) if is_linear]
    n = len(linear) - len(places)

    def run(*args: Any) -> Any:
        others = iter(args[:n])
        full = [None if is_linear else next(others) for is_linear in linear]

        def of_tangents(*tangents: Any) -> list[Any]:
            return _those(jaxpr_as_fun(jaxpr)(*with_items(full, places, tangents)), arrived, True)

        pull = jax.linear_transpose(of_tangents, *_those(jaxpr.in_avals, linear, True))
        return pull(list(args[n:]))

    cotangents = [aval.to_tangent_aval() for aval in _those(jaxpr.out_avals, arrived, True)]
    return trace_jaxpr(run, [*_those(jaxpr.in_avals, linear, False), *cotangents])


ad.primitive_jvps[native_call_p] = _jvp
ad.primitive_transposes[native_call_p] = _transpose
pe.custom_partial_eval_rules[native_call_p] = _split
pe.partial_eval_jaxpr_custom_rules[native_call_p] = _split_equation
pe.dce_rules[native_call_p] = _without_unused
