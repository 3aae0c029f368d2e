"""Values of a step that its backward step reads from a trace, instead of computing them again.

Most operations cost less than to write their result in one loop and to read it in another, so the backward
step computes them again from the states. Products of matrices of known size, factorizations and solutions
of systems cost more: the gradient of a hidden Markov model with 300 states has three products of 300 x 300
by a vector for each step without a trace of the first, and two with it.

In the literature: the choice between storing and recomputing (rematerialization), as in checkpointing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.math import Dot

from loopax.facts import costs
from loopax.ir.ops.inner_graph_op import core_of

# How many times the cost to keep it a value must cost to be stored. Traces may leave the caches, where an
# entry takes several times `costs.KEEP`.
_DEAR = 12.0


def dear_values(
    results: Sequence[Variable], seeds: Collection[Variable], varying: Collection[Variable]
) -> list[Variable]:
    """The values in the graph of ``results`` that are worth storing.

    They depend on none of ``seeds``, the cotangents, and on some of ``varying``, the states and rows. The
    search ends at them: what only they need is not computed at all.
    """
    order = list(toposort(results))
    dear_nodes = {node for node in order if _is_dear(node)}
    if not dear_nodes:
        return []
    backward, forward = set(seeds), set(varying)
    for node in order:
        for depending in (backward, forward):
            if not depending.isdisjoint(node.inputs):
                depending.update(node.outputs)
    dear: dict[Variable, None] = {}
    seen: set[Variable] = set()
    stack = list(results)
    while stack:
        v = stack.pop()
        if v in seen or v.owner is None:
            continue
        seen.add(v)
        if v.owner in dear_nodes and v in forward and v not in backward:
            dear[v] = None
        else:
            stack += v.owner.inputs
    return list(dear)


def _is_dear(node: Apply) -> bool:
    op, n_inputs = core_of(node.op), len(node.inputs)
    shapes: list[Any] = [getattr(v.type, "shape", (None,)) for v in (*node.inputs, *node.outputs)]
    if any(n is None for shape in shapes for n in shape):
        return False
    entries = sum(map(prod, shapes[n_inputs:]))
    if not entries:
        return False
    if isinstance(op, Dot):
        cost = costs.PRODUCT * entries * shapes[0][-1]
    elif (lapack := costs.lapack_cost_of(op)) is not None:
        cost = lapack.for_arrays(shapes[:n_inputs])
    else:
        return False
    return bool(cost > _DEAR * costs.KEEP * entries)
