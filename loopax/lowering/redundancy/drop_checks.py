"""Checks left out: ``Assert(x, ok)`` -> ``x``, in bodies too.

Condition: the user has asked for it. It is none of the passes that every program goes through.
"""

from __future__ import annotations

from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.lowering.bodies import has_bodies, map_bodies


def drop_checks(graph: FunctionGraph) -> None:
    """Replace each check of ``graph``, in place, by the value that it hands on."""
    for node in graph.toposort():
        if isinstance(node.op, CheckAndRaise):
            graph.replace(node.outputs[0], node.inputs[0], reason="drop_checks")
    map_bodies(graph, drop_checks, _may_have_checks)


def _may_have_checks(body: AbstractFunctionGraph) -> bool:
    return has_bodies(body) or any(isinstance(n.op, CheckAndRaise) for n in body.apply_nodes)
