"""Names of JAX loops, their states and traces, from their step functions."""

from __future__ import annotations

from loopax.base.upstream.jax import ClosedJaxpr, JaxprEqn, user_line


def state_names(body: ClosedJaxpr, positions: range) -> list[str]:
    """The names of a step's arguments; its own, or else numbers."""
    names = body.jaxpr.debug_info.arg_names or ()
    return [
        (names[k] if k < len(names) else "") or f"number {k - positions.start}" for k in positions
    ]


def trace_names(body: ClosedJaxpr, positions: range) -> list[str]:
    """Names for the traces: ``y`` with the position of each in the second result of a step."""
    paths = body.jaxpr.debug_info.result_paths
    paths = paths if isinstance(paths, tuple | list) and len(paths) >= positions.stop else None
    return [
        f"number {k - positions.start}"
        if paths is None
        else f"y{paths[k].removeprefix('result[1]')}"
        for k in positions
    ]


def loop_name(eqn: JaxprEqn, body: ClosedJaxpr) -> str:
    """Describe a loop by the name of its step, and its line."""
    info = body.jaxpr.debug_info.func_src_info or eqn.primitive.name
    return f"loop '{info.partition(' at ')[0]}' ({user_line(eqn)})"
