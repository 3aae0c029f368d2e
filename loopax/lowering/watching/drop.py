"""Removal of marks: ``watch(x, name)`` and ``breakpoint_if(c, x)`` -> ``x``, where nobody watches.

It runs before all other passes: none of them would see through a mark.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from loopax.ir.ops.inner_graph_op import core_of, nodes_within
from loopax.ir.ops.watch import Breakpoint, Watch
from loopax.lowering.bodies import replace_nodes


def is_identity(op: Op) -> bool:
    return isinstance(core_of(op), Watch | Breakpoint)


def has_watches(graph: FunctionGraph) -> bool:
    """Whether a value of ``graph``, or of a body in it, is watched."""
    return any(is_identity(node.op) for node in nodes_within(graph.inputs, graph.outputs))


def drop_watches(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    replace_nodes(graph, is_identity, _value, "drop_watches")


def _value(node: Apply) -> Variable:
    """The watched value, which takes the author's name for the result, or the name of the watch."""
    (x, *_), (watched,) = node.inputs, node.outputs
    if x.owner is not None and x.name is None:
        op: Any = core_of(node.op)
        x.name = watched.name or getattr(op, "name", None)
    return x
