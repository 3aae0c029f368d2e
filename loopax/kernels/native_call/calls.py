"""The call of a closed jaxpr without constants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import jax

from loopax.base.upstream.jax import ClosedJaxpr, JaxprEqn, Literal, part_of
from loopax.kernels.native_call.equations import has_loop, inner_equations, inputs_of, outputs_of
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind


def call(jaxpr: ClosedJaxpr, operands: Sequence[Any], plan: Plan) -> list[Any]:
    """Evaluate a closed jaxpr without constants as one equation, unless it has effects or references.

    An equation with an effect, such as a print, or with a reference stays as it is; each run of other
    equations becomes one equation.
    """
    opened = jaxpr.jaxpr
    if not jaxpr.effects and all(map(_is_pure, opened.eqns)):
        return bind(jaxpr, operands, plan)
    values: dict[Any, Any] = dict(zip(opened.invars, operands, strict=True))
    for is_pure, run in groupby(opened.eqns, _is_pure):
        eqns = list(run)
        inputs, outputs = inputs_of(eqns), outputs_of(opened, eqns)
        part = part_of(opened, inputs, outputs, eqns)
        args = [values[v] for v in inputs]
        if is_pure and any(map(has_loop, eqns)):
            outs = bind(ClosedJaxpr(part, ()), args, plan)
        else:
            outs = jax.core.eval_jaxpr(part, (), *args)
        values.update(zip(outputs, outs, strict=True))
        for loop in eqns if not is_pure else ():
            if has_loop(loop):
                plan.say(loop, f"JAX's: there is no native form of {_with_effect(loop)}")
    return [v.val if isinstance(v, Literal) else values[v] for v in opened.outvars]


def _is_pure(eqn: JaxprEqn) -> bool:
    """Whether an equation has no effect, and its inputs and outputs are arrays."""
    is_reference = [hasattr(v.aval, "inner_aval") for v in (*eqn.invars, *eqn.outvars)]
    return not eqn.effects and not any(is_reference)


def _with_effect(eqn: JaxprEqn) -> str:
    """The name of the primitive in an equation that has the effect."""
    culprits = (e for e in inner_equations(eqn) if e.effects)
    return next(map(_with_effect, culprits), str(eqn.primitive.name))
