"""Jaxprs with calls inlined, and their evaluation with some operands replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from loopax.base.upstream.jax import Jaxpr, Literal

# Operations that are calls, with the parameter that has their jaxpr.
CALLS = {
    **dict.fromkeys(("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint"), "jaxpr"),
    "core_closed_call": "call_jaxpr",
}
_INLINED = CALLS | {"custom_jvp_call": "call_jaxpr"}


def flattened(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> Any:
    """Inline all calls of a jaxpr; custom derivatives are dropped."""

    def run(*inputs: Any) -> list[Any]:
        return _inlined(jaxpr, inputs[: len(consts)], inputs[len(consts) :])

    return jax.make_jaxpr(run)(*consts, *args)


def _inlined(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    def apply(k: int, eqn: Any, operands: list[Any]) -> Any:
        key = _INLINED.get(eqn.primitive.name)
        if key is None:
            return bound(k, eqn, operands)
        inner = eqn.params[key]
        return _inlined(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), operands)

    value_of = values_in(jaxpr, consts, args, apply)
    return [value_of(v) for v in jaxpr.outvars]


def bound(k: int, eqn: Any, operands: list[Any]) -> Any:
    """Evaluate an operation."""
    out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return out if eqn.primitive.multiple_results else [out]


def values_in(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    args: Sequence[Any],
    apply: Callable[[int, Any, list[Any]], Any] = bound,
) -> Callable[[Any], Any]:
    """Evaluate a jaxpr; ``apply(k, eqn, given)`` computes the ``k``-th operation."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= zip(jaxpr.invars, args, strict=True)

    def value(v: Any) -> Any:
        return v.val if isinstance(v, Literal) else values[v]

    for k, eqn in enumerate(jaxpr.eqns):
        outs = apply(k, eqn, [value(v) for v in eqn.invars])
        values |= zip(eqn.outvars, outs, strict=True)
    return value


def replacing(operands: Mapping[int, int], by: Callable[[Any], Any]) -> Callable[..., Any]:
    """Make a variant of `bound` that applies ``by`` to one operand of some operations, by number."""

    def apply(k: int, eqn: Any, inputs: list[Any]) -> Any:
        if k in operands:
            inputs[operands[k]] = by(inputs[operands[k]])
        return bound(k, eqn, inputs)

    return apply
