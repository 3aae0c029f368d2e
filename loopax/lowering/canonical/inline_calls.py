"""Calls -> their graphs, in bodies too.

    Call{op}(x, a)  ->  the graph of op, of x and a

For a backend that finds repetitions in its own output, and for consumers that look into loops: derivatives
as graphs, explanations. A call that has a pullback of its own stays, and so does the core of a Blockwise.

In the literature: inlining.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import Op

from loopax.ir import Call
from loopax.ir.replace import outputs_at
from loopax.lowering.bodies import has_bodies, map_bodies


def has_calls(graph: AbstractFunctionGraph) -> bool:
    """Whether ``graph``, not counting its bodies, has a call that can be inlined."""
    return any(_is_inlined(node.op) for node in graph.apply_nodes)


def inline_calls(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    while has_calls(graph):  # each round inlines one level of nested calls
        for node in graph.toposort():
            op: Any = node.op
            if _is_inlined(op):
                new = outputs_at(op.fgraph, node.inputs)
                pairs = list(zip(node.outputs, new, strict=True))
                graph.replace_all(pairs, import_missing=True, reason="inline_calls")
    map_bodies(graph, inline_calls, has_bodies)


def _is_inlined(op: Op) -> bool:
    return type(op) is Call and op.rule is None
