"""Calls, and functions with custom derivatives, after all transformations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import (
    BIT_PRIMITIVES,
    FUNCTION_RULES,
    inner_graph,
    refuse,
    rule,
)

if TYPE_CHECKING:
    from loopax.base.upstream.jax import Jaxpr, JaxprEqn


@rule("jit", "pjit", "closed_call", "core_closed_call", "core_call", keys=True, bits=True)
@rule("remat", "checkpoint", "remat2", "custom_lin", "eval_jaxpr", "loopax_native_call", keys=True)
@rule("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", keys=True)
@rule("function_with_a_rule", keys=True)
def _call(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        jaxpr = eqn.params.get(name)
        if jaxpr is not None:
            break
    else:
        raise refuse(eqn, "without a jaxpr")
    if not hasattr(jaxpr, "consts"):
        jaxpr = _Closed(jaxpr)
    if len(jaxpr.jaxpr.invars) != len(inputs):
        raise refuse(eqn, "with other arguments")
    if eqn.params.get("name") in FUNCTION_RULES:
        out = FUNCTION_RULES[eqn.params["name"]](eqn, *inputs)
        if out is not None:
            return out
    return inner_graph(jaxpr, inputs, eqn.primitive.name in BIT_PRIMITIVES)


@rule("loopax_functional", keys=True)
def _functional(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """The linear part of a native function nested in the step of another one."""
    return inner_graph(eqn.params["of"].jaxpr, inputs)


@rule("name")
def _named(eqn: JaxprEqn, x: TensorVariable) -> Any:
    """A value that a policy of ``jax.checkpoint`` may keep, by its name."""
    return x


@rule("check", keys=True)
def _check(eqn: JaxprEqn, *inputs: TensorVariable) -> Any:
    """Skip a check that checkify has not collected, unless the host is to raise."""
    if eqn.params["raises"]:
        raise refuse(eqn, "errors of the host")
    return list(inputs[:-1])


@rule("platform_index")
def _platform_index(eqn: JaxprEqn) -> Any:
    """The number of the branch for CPUs; None denotes the branch for all other platforms."""
    platforms = eqn.params["platforms"]
    branches = [k for k, names in enumerate(platforms) if names is None or "cpu" in names]
    if not branches:
        raise refuse(eqn, "programs without a branch for CPUs")
    return pt.constant(branches[0], dtype="int32")


@rule("device_put")
def _device_put(eqn: JaxprEqn, *xs: TensorVariable) -> Any:
    if any(device is not None for device in eqn.params["devices"]):
        raise refuse(eqn, "a transfer to a device")
    return list(xs)


class _Closed:
    """A jaxpr without constants."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self.jaxpr = jaxpr
        self.consts: list[Any] = []
