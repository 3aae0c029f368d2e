"""A ``lax.scan`` whose step keeps the custom derivatives of its functions, at any order.

To differentiate a ``scan`` in reverse mode, JAX 0.10 hoists loop-invariant values, and inlines the *bodies*
of functions with a ``jax.custom_jvp``. A further derivative, such as ``jax.hessian``, then differentiates
the body: NaN where a rule avoids 0 / 0, an error where a body has a ``while_loop``. JAX keeps a primitive
of loopax, so each such call in the step becomes a `Function` with the same rule. A test of the installed
release tells whether this is necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from loopax.base.upstream.jax import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    inner_jaxprs,
    is_jaxpr,
    jaxpr_as_fun,
    part_of,
)
from loopax.ir.sequences import partial_at
from loopax.jax_backend.staging.linear import Function, function_with_rule
from loopax.numerics import manual_axes

_CUSTOM_JVP = "custom_jvp_call"
# Their other parameters depend on their jaxpr, which stays as it is; JAX keeps their rules.
_WHOLE = {"custom_vjp_call", "custom_vjp_call_jaxpr", function_with_rule.name}


def scan(
    body: Callable[[Any, Any], Any],
    init: object,
    xs: object,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> Any:
    """Run `manual_axes.scan` with a step whose custom derivatives are kept."""
    if _scan_forgets_rules():
        body = with_kept_rules(body)
    return manual_axes.scan(body, init, xs, length, reverse=reverse, unroll=unroll)


@cache
def _scan_forgets_rules() -> bool:
    @jax.custom_jvp
    def identity(x: jax.Array) -> jax.Array:
        return x

    @identity.defjvp
    def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> Any:
        return identity(primals[0]), primals[0] * tangents[0]

    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (identity(c), None), x, None, length=1)[0]

    with jax.ensure_compile_time_eval():
        return _CUSTOM_JVP not in str(jax.make_jaxpr(jax.grad(loop))(1.0))


def with_kept_rules(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each ``jax.custom_jvp`` in ``function``, of arrays in pytrees, by a `Function`."""

    def kept(*args: object) -> Any:
        leaves, tree = jax.tree.flatten(args)
        structures = []

        def flat(*leaves: jax.Array) -> list[Any]:
            results, structure = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
            structures.append(structure)
            return results

        program = jax.make_jaxpr(flat)(*leaves)
        return jax.tree.unflatten(structures[-1], jaxpr_as_fun(_kept(program))(*leaves))

    return kept


def _kept(program: ClosedJaxpr | Jaxpr) -> Any:
    """Replace the calls in a jaxpr, closed or open, and in the jaxprs of its equations."""
    jaxpr: Any = getattr(program, "jaxpr", program)
    replaced = jaxpr.replace(eqns=[_kept_equation(eqn, jaxpr) for eqn in jaxpr.eqns])
    return ClosedJaxpr(replaced, program.consts) if hasattr(program, "consts") else replaced


def _kept_equation(eqn: JaxprEqn, jaxpr: Jaxpr) -> JaxprEqn:
    name = eqn.primitive.name
    if name == _CUSTOM_JVP:
        operands: list[Any] = list(
            dict.fromkeys(v for v in eqn.invars if not isinstance(v, Literal))
        )
        call = ClosedJaxpr(part_of(jaxpr, operands, eqn.outvars, [eqn]), [])
        params = {"of": _function_of(call), "jaxpr": call}
        return eqn.replace(invars=operands, primitive=function_with_rule, params=params)
    if name in _WHOLE or not any(map(_has_rule, inner_jaxprs(eqn))):
        return eqn
    return eqn.replace(params={key: _kept_in(x) for key, x in eqn.params.items()})


def _has_rule(program: ClosedJaxpr | Jaxpr) -> bool:
    return any(
        eqn.primitive.name == _CUSTOM_JVP
        or (eqn.primitive.name not in _WHOLE and any(map(_has_rule, inner_jaxprs(eqn))))
        for eqn in getattr(program, "jaxpr", program).eqns
    )


def _kept_in(parameter: Any) -> Any:
    if isinstance(parameter, tuple | list):
        return type(parameter)(map(_kept_in, parameter))
    return _kept(parameter) if is_jaxpr(parameter) else parameter


def _function_of(call: ClosedJaxpr) -> Function:
    """The `Function` with the rule of the only call in a closed jaxpr."""
    run = jaxpr_as_fun(call)

    def jvp(primals: Sequence[jax.Array], tangents: Sequence[jax.Array | None]) -> Any:
        moving = [k for k, t in enumerate(tangents) if t is not None]

        def pushed(primals: Sequence[jax.Array], some: Sequence[jax.Array]) -> Any:
            return jax.jvp(partial_at(run, primals, moving), [primals[k] for k in moving], some)

        outs, dots = with_kept_rules(pushed)(primals, [tangents[k] for k in moving])
        return outs, [
            d if jnp.issubdtype(x.dtype, jnp.inexact) else None
            for x, d in zip(outs, dots, strict=True)
        ]

    (eqn,) = call.jaxpr.eqns
    body = jaxpr_as_fun(eqn.params["call_jaxpr"])
    places = {v: k for k, v in enumerate(call.jaxpr.invars)}

    def run_body(args: Any) -> list[Any]:
        operands = [v.val if isinstance(v, Literal) else args[places[v]] for v in eqn.invars]
        return list(body(*operands))

    return Function(run_body, jvp, applies_itself=True)
