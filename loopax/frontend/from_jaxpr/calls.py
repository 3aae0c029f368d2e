"""Calls, and functions with derivatives of their own: all transformations have been applied by now."""

from __future__ import annotations

from typing import Any

from loopax.frontend.from_jaxpr.reading import inner_graph, refuse, rule


@rule("jit", "pjit", "closed_call", "core_closed_call", "core_call", keys=True)
@rule("remat", "checkpoint", "remat2", "custom_lin", "eval_jaxpr", "loopax_native_call", keys=True)
@rule("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", keys=True)
def _call(eqn: Any, *inputs: Any) -> Any:
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
    return inner_graph(jaxpr, inputs)


class _Closed:
    """A jaxpr without constants."""

    def __init__(self, jaxpr: Any) -> None:
        self.jaxpr = jaxpr
        self.consts: list[Any] = []
