"""A function and its pullback as two graphs: the first keeps residuals that are expensive to recompute.

    before   x -> y                           before   x, dy -> dx   (runs the loop of y once more)
    after    x -> y, states                   after    x, states, dy -> dx

The residuals are a minimum cut of the pullback's graph between the nodes that must not run twice (loops,
linear algebra, functions such as exp, draws) and those that need the cotangents: the fewest bytes from
which the rest is cheap to compute. So a loop keeps its states, and the values inside a step are computed
again. PyTorch's ahead-of-time autograd partitions its joint graphs in this way (functorch,
``min_cut_rematerialization_partition``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Pow
from pytensor.tensor.type import DenseTensorType
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from loopax.facts import Structure, facts_of
from loopax.facts.constants import constant_value
from loopax.facts.elementwise import is_dear_function, is_elementwise
from loopax.ir.effects import Speculation, speculation
from loopax.ir.replace import replaced

Variables = Sequence[Any]

# Entries along an axis of unknown length. Loops take many steps, so values without such an axis are
# kept first.
_USUAL_LENGTH = 128
_UNCUT = 2**30  # more than all values together
_MOST_BYTES = 2**20


class Partition(NamedTuple):
    """Two graphs: to ``[*outputs, *residuals]``, and from inputs, residuals and cotangents back."""

    forward: FunctionGraph
    backward: FunctionGraph


def partition(
    inputs: Variables, outputs: Variables, cotangents: Variables, in_cotangents: Variables
) -> Partition | None:
    """Split ``inputs -> outputs`` and its pullback to ``in_cotangents`` into two graphs.

    None where no residual is worth keeping, or one is not an array.
    """
    residuals = residuals_of(inputs, cotangents, in_cotangents)
    if not residuals or not all(isinstance(v.type, DenseTensorType) for v in residuals):
        return None
    residual_inputs = [v.type() for v in residuals]
    pullback = replaced(in_cotangents, dict(zip(residuals, residual_inputs, strict=True)))
    return Partition(
        FunctionGraph(list(inputs), [*outputs, *residuals], clone=True),
        FunctionGraph([*inputs, *residual_inputs, *cotangents], pullback, clone=True),
    )


def residuals_of(inputs: Variables, cotangents: Variables, in_cotangents: Variables) -> list[Any]:
    """The residuals that a pullback reads besides the ``inputs``: a minimum cut."""
    nodes, boundary = _known_part(inputs, cotangents, in_cotangents)
    values = [v for node in nodes for v in node.outputs]
    index = {v: k for k, v in enumerate(values)}
    # Each value has an edge from its entry to its exit; cutting that edge means keeping the value.
    source, sink = 2 * len(values), 2 * len(values) + 1
    edges = {(2 * k, 2 * k + 1): _bytes(v) for k, v in enumerate(values)}
    for node in nodes:
        operand_exits = [2 * index[v] + 1 for v in facts_of(node.op).reads(node) if v in index]
        tails = [source, *operand_exits] if _must_run_once(node) else operand_exits
        edges |= {(x, 2 * index[out]): _UNCUT for x in tails for out in node.outputs}
    edges |= {(2 * index[v] + 1, sink): _UNCUT for v in boundary if v in index}
    return [values[k] for k in _cut(edges, source, sink)]


def _known_part(
    inputs: Variables, cotangents: Variables, in_cotangents: Variables
) -> tuple[list[Apply], set[Any]]:
    """The nodes of a pullback that need no cotangent, and their values that other nodes read."""
    moving, known_values, nodes = set(cotangents), set(inputs), []
    boundary = {v for v in in_cotangents if v not in moving}
    for node in toposort(in_cotangents, blockers=[*inputs]):
        if any(v in moving for v in node.inputs):
            moving.update(node.outputs)
            boundary.update(v for v in facts_of(node.op).reads(node) if v not in moving)
        elif any(v in known_values for v in node.inputs):  # else it is a constant, folded by a pass
            known_values.update(node.outputs)
            nodes.append(node)
    return nodes, (boundary - moving) & known_values


def _cut(edges: dict[tuple[int, int], int], source: int, sink: int) -> list[int]:
    """The indices of the values in a minimum cut between ``source`` and ``sink``."""
    n = sink + 1
    rows, columns = np.array([*edges], dtype=np.int32).reshape(-1, 2).T
    capacity = csr_matrix((np.fromiter(edges.values(), np.int32), (rows, columns)), shape=(n, n))
    residual_graph = capacity - maximum_flow(capacity, source, sink).flow
    residual_graph.eliminate_zeros()
    reached = set(breadth_first_order(residual_graph, source, return_predecessors=False).tolist())
    return [k for k in range(source // 2) if 2 * k in reached and 2 * k + 1 not in reached]


_RUN_ONCE = Structure.CONTRACTS, Structure.OTHER


def _must_run_once(node: Apply) -> bool:
    """Whether ``node`` must not run again: it is expensive, or may give another result."""
    op: Any = node.op
    structure = facts_of(op).structure
    if structure is Structure.ELEMENTWISE:
        return is_dear_function(op) and not _is_small_power(node)
    return speculation(node) is Speculation.FIXED or structure in _RUN_ONCE


def _is_small_power(node: Apply) -> bool:
    """Whether ``node`` is a power that a pass turns into a product of a few factors."""
    if not is_elementwise(node, Pow):
        return False
    exponent = constant_value(node.inputs[-1])
    return exponent is not None and exponent.item() in (-2, -1, 0, 1, 2, 3)


def _bytes(v: Variable) -> int:
    if not isinstance(v.type, DenseTensorType):
        return _UNCUT
    lengths = [_USUAL_LENGTH if n is None else n for n in v.type.shape]
    return min(_MOST_BYTES, 1 + math.prod(lengths) * np.dtype(v.type.dtype).itemsize)
