"""``watch(x, name)``, ``breakpoint_if(c, x)`` -> ``x``: of them there is nothing where nobody watches.

Before all passes: none of them would see through one.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise

from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.watch import Breakpoint, Watch
from loopax.lowering.bodies import replace_nodes


def is_identity(op: Any) -> bool:
    return isinstance(op.core_op if isinstance(op, Blockwise) else op, Watch | Breakpoint)


def has_watches(graph: FunctionGraph) -> bool:
    """Whether a value of ``graph``, or of a body in it, is watched."""
    return any(is_identity(node.op) for node in nodes_within(graph.inputs, graph.outputs))


def drop_watches(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    replace_nodes(graph, is_identity, lambda node: node.inputs[0], "drop_watches")
