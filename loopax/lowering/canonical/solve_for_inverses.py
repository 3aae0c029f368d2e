"""Inverses as solutions: ``inv(a)`` -> ``solve(a, eye(n))``, in bodies too.

Where ``a`` is singular the first raises and the second is nan, in native code. A program that runs inside
of JAX as one of its operations has to behave as JAX's operations do, which never raise. Condition:
native code inside of JAX. It is not among the passes that every program goes through, and runs after them.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import eye
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import solve

from loopax.ir.ops.inner_graph_op import core_of
from loopax.lowering.bodies import replace_nodes


def solve_for_inverses(graph: FunctionGraph) -> None:
    """Replace each inverse in ``graph``, in place."""
    replace_nodes(
        graph, lambda op: isinstance(core_of(op), MatrixInverse), _solution, "solve_for_inverses"
    )


def _solution(node: Apply) -> Any:
    a: Any = node.inputs[0]
    return solve(a, eye(a.shape[-1], dtype=node.outputs[0].type.dtype))
