"""A function of arrays as a closed jaxpr without constants, and its call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from loopax.base.upstream.jax import jaxpr_as_fun
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind


def traced_call(f: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[Any], Any]:
    """The jaxpr of ``f(*args)``, the operands for it, and the structure of its results.

    Constants may be tracers of the caller: they are operands.
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


def call(jaxpr: Any, operands: Sequence[Any], plan: Plan) -> list[Any]:
    """The outputs of a closed jaxpr, as one equation unless it has effects."""
    if jaxpr.effects:
        outs: list[Any] = jaxpr_as_fun(jaxpr)(*operands)
        return outs
    return bind(jaxpr, operands, plan)
