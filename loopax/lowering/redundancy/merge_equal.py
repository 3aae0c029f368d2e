"""Equal computations are done once; the terms of sums and products may be in any order.

    2 * x * y  and  y * 2 * x   ->   one node
    a + b + a                   ->   2 * a + b

Condition: sums and products of one type; for other ops, their own equality, as in PyTensor's merge (two
draws from one generator are equal).

Reason: each derivative of a loop recomputes the step, and the product rule writes one product in every
order. The terms of a sum may be added in another order than before: the last bits may differ.

In the literature: common subexpression elimination, up to reassociation.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer

from loopax.facts.elementwise import is_elementwise
from loopax.lowering.bodies import map_bodies


def merge_equal(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    MergeOptimizer().rewrite(graph)
    while _merge_in_any_order(graph):  # terminates: each round removes a node
        MergeOptimizer().rewrite(graph)
    for node in graph.toposort():
        if _in_any_order(node) and is_elementwise(node, ps.Add):
            _count(graph, node)
    map_bodies(graph, merge_equal, where=lambda body: len(body.apply_nodes) > 1)


def _in_any_order(node: Apply) -> bool:
    op: Any = node.op
    return (
        is_elementwise(node, ps.Add, ps.Mul)
        and not op.inplace_pattern
        and node.outputs[0].type.dtype != "bool"
        # Integers narrower than the result would be added among themselves first.
        and all(
            isinstance(v, Constant) or v.type.dtype == node.outputs[0].type.dtype
            for v in node.inputs
        )
    )


def _merge_in_any_order(graph: FunctionGraph) -> bool:
    """Merge sums and products with the same terms; return whether there were any."""
    first: dict[Any, Any] = {}
    pairs = []
    for node in graph.toposort():
        if _in_any_order(node):
            (out,) = node.outputs
            same = first.setdefault((node.op, frozenset(Counter(node.inputs).items())), out)
            if same is not out:
                pairs.append((out, out.type.filter_variable(same)))
    graph.replace_all(pairs, reason="merge_equal")
    return bool(pairs)


def _count(graph: FunctionGraph, node: Apply) -> None:
    counts = Counter(node.inputs)
    if len(counts) == len(node.inputs):
        return
    (out,) = node.outputs
    terms = [v if n == 1 else _times(n, v) for v, n in counts.items()]
    total = terms[0] if len(terms) == 1 else pt.add(*terms)
    graph.replace_all([(out, out.type.filter_variable(total))], reason="merge_equal")


def _times(n: int, v: Variable) -> Any:
    return pt.mul(np.full((1,) * v.type.ndim, n, dtype=v.type.dtype), v)
