"""Nodes of a batch that stack rows whose lengths depend on their values, and so may differ.

``x[x > 0]``, ``arange(n)`` and the trace of a loop that stops have another length in every row, and no
array holds such rows. Where `may_stack_lengths` is true of a node, its graph is right only if it runs
row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import ARange, Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import Unique
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor

from loopax.facts import facts_of
from loopax.facts.products import CoreNode
from loopax.ir.batching.row_values import row_value
from loopax.ir.ops.checked import Checked
from loopax.ir.ops.rows import KeepRows

# Ops whose output lengths depend on the values of all their inputs. In a batch PyTensor wraps them in
# a `Blockwise`, which stacks the results of the rows.
_VALUE_DEPENDENT = (ARange, Nonzero, Unique)

# The check for a batch whose rows may differ in their number of steps, over sequences of one length.
EQUAL_STEPS = Checked(
    AssertionError, "A batched loop over sequences takes as many steps as they have rows"
)


def is_padded(v: Variable) -> bool:
    """Whether ``v`` is a trace fresh from `vectorize_scan`, with zeros after the end of some rows."""
    return getattr(v.tag, "is_padded", False)


def may_stack_lengths(node: Apply) -> bool:
    """Whether ``node`` stacks results of rows whose lengths may differ, or loops over such rows."""
    op = node.op
    if op == EQUAL_STEPS:
        return True
    if any(map(is_padded, node.inputs)):
        return not isinstance(op, KeepRows)  # its count is an input
    if not isinstance(op, Blockwise):
        return False
    ndim = op.batch_ndim(node)
    if None not in node.outputs[0].type.shape[ndim:]:
        return False
    return any(row_value(v, ndim) is None for v in _sizes(op.core_op, node))


def _sizes(core_op: Op, node: Apply) -> Sequence[Any]:
    """The inputs of ``node``, a `Blockwise` of ``core_op``, that determine its output lengths."""
    if isinstance(core_op, IncSubtensor):
        return []  # it has the lengths of the array that it writes into
    if isinstance(core_op, AdvancedSubtensor):
        return [v for v in node.inputs[1:] if v.type.dtype == "bool"]
    if isinstance(core_op, _VALUE_DEPENDENT):
        return node.inputs
    return facts_of(core_op).lengths(CoreNode.of(node))
