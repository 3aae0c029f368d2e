"""What is done to a graph, done to the bodies of its ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.tensor.blockwise import Blockwise

from loopax.ir import Call
from loopax.ir.compat import InnerGraphOp, thaw


def map_bodies(graph: FunctionGraph, change: Callable[[FunctionGraph], None]) -> None:
    """Run ``change``, which works in place, on a copy of each body of ``graph``'s ops.

    Bodies inside a body are left to ``change``. An op whose body comes back equal stays as it is.
    """
    for node in graph.toposort():
        op = _changed(node.op, change)
        if op is not node.op:
            new = op.make_node(*node.inputs)
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            graph.replace_all(pairs, reason="map_bodies")


def _changed(op: Any, change: Callable[[FunctionGraph], None]) -> Any:
    if isinstance(op, Blockwise) and isinstance(op.core_op, InnerGraphOp):
        core = _changed(op.core_op, change)
        if core is op.core_op:
            return op
        return Blockwise(core, signature=op.signature, name=op.name)
    if not isinstance(op, InnerGraphOp):
        return op
    body = _with(op.fgraph, change)
    if isinstance(op, Call) and op.pullback_body is not None:
        pullback = _with(op.pullback_body, change)
        if body is op.fgraph and pullback is op.pullback_body:
            return op
        return Call(body, pullback, op.name)
    return op if body is op.fgraph else op.with_body(body)


def _with(body: FrozenFunctionGraph, change: Callable[[FunctionGraph], None]) -> Any:
    graph = thaw(body)
    change(graph)
    new = graph.freeze()
    return body if new == body else new
