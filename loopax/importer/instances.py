"""Instances of one graph, or of equal graphs, that remain calls.

    op(x, a) + op(y, b)  ->  Call{op}(x, a) + Call{op}(y, b)

Condition: the graph contains a loop, and its outputs are float tensors. Smaller graphs are simplified
together with their surroundings, which saves more than rewriting and tracing them once. Graphs with watched
or checked values inside are inlined as well, so that these are found in place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.type import DenseTensorType

from loopax.ir import Call, Scan
from loopax.ir.derivatives.inner_gradients import is_float
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.watch import Breakpoint, Watch


def keep_instances(
    graph: FunctionGraph,
    is_opened: Callable[[Any], bool],
    opened: Callable[[Any], FrozenFunctionGraph],
) -> None:
    """Replace the instances in ``graph`` by calls, in place.

    ``is_opened`` says which ops are nothing but their graphs, and ``opened`` imports such a graph to the
    IR.
    """
    instances: dict[FrozenFunctionGraph, list[Apply]] = defaultdict(list)
    for node in graph.toposort():
        if is_opened(node.op) and _is_of_tensors(node):
            instances[opened(node.op)].append(node)
    for body, nodes in instances.items():
        if len(nodes) > 1 and _is_worth_a_call(body):
            for node in nodes:
                op: Any = node.op
                call = Call(body, name=op.name or type(op).__name__)
                new = call.make_node(*node.inputs).outputs
                graph.replace_all(list(zip(node.outputs, new, strict=True)), reason="instances")


def _is_of_tensors(node: Apply) -> bool:
    tensors = all(isinstance(v.type, DenseTensorType) for v in (*node.inputs, *node.outputs))
    return tensors and all(map(is_float, node.outputs))


def _is_worth_a_call(body: FrozenFunctionGraph) -> bool:
    ops = [node.op for node in nodes_within(body.inputs, body.outputs)]
    has_loop = any(isinstance(op, Scan) for op in ops)
    return has_loop and not any(isinstance(op, CheckAndRaise | Watch | Breakpoint) for op in ops)
