"""Equations of jaxprs: their loops, and the inputs and outputs of a run of equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopax.base.upstream.jax import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    inner_jaxprs,
    is_jaxpr,
)

_LOOPS = {"scan", "while"}
# Their other parameters depend on the meaning of their jaxpr, which therefore stays as it is.
CUSTOM_DERIVATIVES = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}


def inputs_of(run: Sequence[JaxprEqn]) -> list[Var]:
    """The variables that a run reads but does not compute, in order."""
    computed = {v for eqn in run for v in eqn.outvars}
    operands = (v for eqn in run for v in eqn.invars if not isinstance(v, Literal))
    return list(dict.fromkeys(v for v in operands if v not in computed))


def outputs_of(jaxpr: Jaxpr, run: Sequence[JaxprEqn]) -> list[Var]:
    """The variables computed by a run and read by other equations, or returned by the jaxpr."""
    inside = set(map(id, run))
    eqns_outside = [eqn for eqn in jaxpr.eqns if id(eqn) not in inside]
    read_outside = {v for eqn in eqns_outside for v in eqn.invars if isinstance(v, Var)}
    read_outside |= {v for v in jaxpr.outvars if isinstance(v, Var)}
    return [v for eqn in run for v in eqn.outvars if v in read_outside]


def inner_equations(eqn: JaxprEqn) -> list[JaxprEqn]:
    """The equations of the jaxprs among the parameters of an equation."""
    return [e for jaxpr in inner_jaxprs(eqn) for e in getattr(jaxpr, "jaxpr", jaxpr).eqns]


def with_jaxprs(eqn: JaxprEqn, change: Callable[[Jaxpr], Jaxpr]) -> Any:
    """Change the jaxprs among the parameters of an equation; the equation itself where none changes."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple | list) and value and all(map(is_jaxpr, value)):
            inner = list(map(changed, value))
            if all(new is old for new, old in zip(inner, value, strict=True)):
                return value
            # A named tuple, as of a linear solve, takes its fields one by one.
            return type(value)(*inner) if hasattr(value, "_fields") else type(value)(inner)
        if not is_jaxpr(value):
            return value
        jaxpr = getattr(value, "jaxpr", value)
        new = change(jaxpr)
        if new is jaxpr:
            return value
        return ClosedJaxpr(new, value.consts) if hasattr(value, "consts") else new

    params = {name: changed(value) for name, value in eqn.params.items()}
    is_same = all(new is old for new, old in zip(params.values(), eqn.params.values(), strict=True))
    return eqn if is_same else eqn.replace(params=params)


def is_loop(eqn: JaxprEqn) -> bool:
    return eqn.primitive.name in _LOOPS


def has_loop(eqn: JaxprEqn) -> bool:
    """Whether an equation is a loop, or contains one in a jaxpr among its parameters."""
    return is_loop(eqn) or any(map(has_loop, inner_equations(eqn)))


def outermost_loops(eqn: JaxprEqn) -> list[Any]:
    """The equation if it is a loop, or else the loops in it."""
    if is_loop(eqn):
        return [eqn]
    return [loop for e in inner_equations(eqn) for loop in outermost_loops(e)]


def in_words(eqn: JaxprEqn) -> str:
    """Describe a loop in words."""
    name = eqn.primitive.name
    if name == "scan":
        return f"scan of {eqn.params['length']} steps"
    return name


def n_rows(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    """The number of variables around a loop whose rows enter or leave its step."""
    return sum(len(v.aval.shape) != len(w.aval.shape) for v, w in zip(outer, inner, strict=True))


def most_axes(jaxpr: Jaxpr) -> int:
    """The greatest number of axes of any value."""
    inner = [most_axes(getattr(j, "jaxpr", j)) for eqn in jaxpr.eqns for j in inner_jaxprs(eqn)]
    variables = [v for eqn in jaxpr.eqns for v in eqn.outvars] + list(jaxpr.outvars)
    avals: list[Any] = [v.aval for v in variables]
    return max([0, *inner, *(len(a.shape) for a in avals)])


def loop_depth(eqns: Sequence[JaxprEqn]) -> int:
    """The depth of nested loops."""
    return max([is_loop(eqn) + loop_depth(inner_equations(eqn)) for eqn in eqns], default=0)
