"""Outputs over a batch of their inputs: all rows at once, or row by row in a loop.

PyTensor's ``vectorize_graph`` computes all rows at once. Two kinds of programs have no such form, and
become a `Scan` over the rows, whose step is the program of one row:

- values whose length depends on values, ``x[x > 0]``, ``x[:n]``, ``arange(n)``, or the trace of a
loop that stops: the length differs from row to row, and no array holds the rows;
- functions of values without axes: typed lists, sparse matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import ARange, Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import Unique
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor

from loopax.base.errors import LoopaxError
from loopax.facts import facts_of
from loopax.facts.products import CoreNode
from loopax.frontend.loops.map_reduce import map as map_rows
from loopax.ir.batching.batch import vectorized
from loopax.ir.batching.row_values import row_value
from loopax.ir.batching.vectorize_scan import EQUAL_STEPS, is_padded
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.rows import KeepRows
from loopax.ir.replace import replaced
from loopax.ir.sequences import with_items

# Ops whose output lengths depend on the values of all their inputs. In a batch PyTensor wraps them in
# a `Blockwise`, which stacks the results of the rows.
_VALUE_DEPENDENT = (ARange, Nonzero, Unique)


def batched_outputs(
    outputs: Sequence[Variable], rows: Mapping[Variable, Variable]
) -> list[Variable]:
    """Batch ``outputs`` over ``rows``; an output that depends on none of these stays unchanged.

    Parameters
    ----------
    outputs
        The outputs of one row.
    rows
        For each variable of a row its batch, with an additional leading axis; or its shared value for all
        rows, of its own type.

    Raises
    ------
    NotImplementedError, TypeError
        An op cannot be batched, and the outputs cannot be computed in a loop over rows.
    """
    changed = {row: batch for row, batch in rows.items() if row is not batch}
    try:
        batched = vectorized(outputs, changed)
    except (NotImplementedError, TypeError) as error:  # TypeError: a type without axes
        try:
            return _row_by_row(outputs, changed)
        except (LoopaxError, NotImplementedError, TypeError):
            raise error from None
    if any(map(_may_stack_lengths, nodes_within(changed.values(), batched))):
        try:
            unpadded = [k for k, v in enumerate(batched) if not is_padded(v)]
            row_results = _row_by_row([outputs[k] for k in unpadded], changed)
            return with_items(batched, unpadded, row_results)
        except (LoopaxError, NotImplementedError, TypeError):
            pass  # such as a generator, which a loop over rows would carry: the lengths may be equal
    return batched


def _row_by_row(outputs: Sequence[Variable], rows: Mapping[Variable, Variable]) -> list[Variable]:
    """Build a loop over the batch whose step is the program of one row."""
    captured = {row: x for row, x in rows.items() if x.type == row.type}
    rows = {row: x for row, x in rows.items() if row not in captured}
    outputs = replaced(outputs, captured)
    mapped = [k for k, v in enumerate(outputs) if not set(rows).isdisjoint(ancestors([v]))]
    chosen = [outputs[k] for k in mapped]
    batched = map_rows(
        lambda step: replaced(chosen, dict(zip(rows, step, strict=True))), list(rows.values())
    )
    return with_items(outputs, mapped, batched)


def _may_stack_lengths(node: Apply) -> bool:
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
