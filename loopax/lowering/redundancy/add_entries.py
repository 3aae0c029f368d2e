"""Sums with an array that is zero except for a few entries -> additions of these entries alone.

    a + set_subtensor(zeros[i], y)  ->  inc_subtensor(a[i], y)
    a + inc_subtensor(zeros[i], y)  ->  inc_subtensor(a[i], y)

Condition: the lengths of both are static and equal, so are their dtypes, and nothing else reads the array
of zeros and entries. A set at an array of indices stays: where indices repeat it keeps one value, and an
addition would add all of them.

Reason: the transpose of a read in a loop adds one entry to a cotangent at each step. As a sum of arrays
this takes time proportional to the length of the array; as an addition in place it does not. PyTensor's
`local_add_of_sparse_write` is wrong on 3.0 where the other term is broadcast.

In the literature: sparse accumulation of gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1
from loopax.facts.constants import constant_value
from loopax.facts.elementwise import is_elementwise
from loopax.lowering.bodies import map_bodies, with_nodes

_WRITES = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)


def add_entries(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    for node in graph.toposort():
        if is_elementwise(node, ps.Add):
            total = _added(graph, node)
            if total is not None:
                graph.replace(node.outputs[0], total, reason="add_entries")
    map_bodies(graph, add_entries, where=with_nodes(lambda node: isinstance(node.op, _WRITES)))


def _added(graph: FunctionGraph, node: Apply) -> Any:
    """The sum as additions of entries to its other terms; None where no term is an array of entries."""
    (out,) = node.outputs
    entries = [v for v in node.inputs if _is_of_entries(graph, v) and v.type == out.type]
    terms = [v for v in node.inputs if v not in entries]
    if not terms:
        entries, terms = entries[1:], entries[:1]
    total: Any = pt.add(*terms) if len(terms) > 1 else terms[0]
    if not entries or None in out.type.shape or total.type != out.type:
        return None
    for v in entries:
        write: Any = v.owner
        total = _adding(write.op).make_node(total, *write.inputs[1:]).outputs[0]
    return total


def _is_of_entries(graph: FunctionGraph, v: Variable) -> bool:
    """Whether ``v`` is a write into zeros, read only once, that an addition can replace."""
    node = v.owner
    if node is None or not isinstance(node.op, _WRITES) or len(graph.clients[v]) > 1:
        return False
    may_repeat = not isinstance(node.op, IncSubtensor) and node.op.set_instead_of_inc
    is_plain = not getattr(node.op, "ignore_duplicates", False) and not node.op.inplace
    return is_plain and not may_repeat and is_zero(node.inputs[0])


def is_zero(v: Variable) -> bool:
    """Whether ``v`` is an array of zeros by its form."""
    value = constant_value(v)
    return value is not None and not np.any(value)


def _adding(op: IncSubtensor | AdvancedIncSubtensor) -> Any:
    if not op.set_instead_of_inc:
        return op
    return IncSubtensor(op.idx_list, set_instead_of_inc=False)
