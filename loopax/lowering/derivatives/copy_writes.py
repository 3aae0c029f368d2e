"""A read of elements that were just written at the same indices, which may repeat  ->  a read of a copy.

    x[i].set(y)[i]  ->  copy(x[i].set(y))[i]

Condition: none.

Reason: PyTensor's modes rewrite the left side to ``y`` (`local_read_of_write_same_indices` of 3.3.8,
`local_adv_sub1_adv_inc_sub1` of 3.0.7). Where an index repeats, an earlier element is read as if it had not
been overwritten. The derivative of a write contains such a read, to find the elements that stay. No rewrite
of PyTensor's looks through a copy. Our own modes use neither this pass nor PyTensor's rewrite.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.ir.derivatives.rules.writes import may_repeat

_READS = AdvancedSubtensor, AdvancedSubtensor1
_WRITES = AdvancedIncSubtensor, AdvancedIncSubtensor1


def copy_writes(graph: FunctionGraph, users: Collection[Apply]) -> None:
    """Run the pass on ``graph``, in place, except for the nodes that its user wrote."""
    for node in graph.toposort():
        if node in users or not isinstance(node.op, _READS):
            continue
        array, *indices = node.inputs
        write = array.owner
        if write is None or not isinstance(write.op, _WRITES) or not may_repeat(indices):
            continue
        copy: Any = deep_copy_op(array)
        graph.change_node_input(node, 0, copy, reason="copy_writes")
