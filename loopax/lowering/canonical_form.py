"""The form of a graph after `CANONICAL_PASSES`, where both forms of a program begin with them.

Most programs are lowered twice: as JAX's operations, whose trace gives the costs, and as native code. Up to
`stabilize`, which takes half of the time, the passes are the same but for `unmask`, which looks for a
`Cond` in a loop, and for the rewrites of small matrices.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import clone_get_equiv
from pytensor.graph.fg import FunctionGraph

from loopax.ir import Scan
from loopax.ir.ops.inner_graph_op import InnerGraphOp, nodes_within
from loopax.ir.program import GraphParts
from loopax.lowering.canonical.stabilize import has_matrices_of_few_rows, is_matrix_op


def is_common(graph: FunctionGraph) -> bool:
    """Whether both forms of ``graph``, before the passes, have one canonical form."""
    nodes = list(nodes_within(graph.inputs, graph.outputs))
    inner = [node.op for node in nodes if isinstance(node.op, InnerGraphOp)]
    if not inner:
        return not has_matrices_of_few_rows(graph)
    return all(isinstance(op, Scan) for op in inner) and not any(map(is_matrix_op, nodes))


def copied_into(graph: FunctionGraph, form: GraphParts) -> list[Any]:
    """Copies of the outputs of ``form``, the canonical form of ``graph``, from the inputs of ``graph``."""
    inputs, outputs = form
    copies: Any = dict(zip(inputs, graph.inputs, strict=True))
    clone_get_equiv(inputs, outputs, copy_inputs=False, memo=copies)
    return [copies[v] for v in outputs]
