"""Outputs over a batch of their inputs: all rows at once, or row by row in a loop.

All at once is PyTensor's ``vectorize_graph``. Two kinds of programs have no such form, and are a `Scan`
over the rows, whose step is the program of one row:

- what has a length that follows from values, ``x[x > 0]``, ``x[:n]``, ``arange(n)``, or that of the trace
  of a loop that stops: it differs from row to row, and no array holds it;
- what is made of values that have no axes: typed lists, sparse matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import ARange, Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import Unique
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor

from loopax.base.errors import LoopaxError
from loopax.facts import facts_of
from loopax.facts.products import CoreNode
from loopax.frontend.loops.variants import map as map_rows
from loopax.ir.batching.batch import vectorized
from loopax.ir.batching.row_values import row_value
from loopax.ir.batching.vectorize_scan import EQUAL_STEPS, is_padded
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.rows import KeepRows
from loopax.ir.replace import replaced
from loopax.ir.sequences import with_items

# Ops whose lengths follow from the values of all their inputs. In a batch PyTensor puts a `Blockwise`
# around them, which stacks the results of the rows.
_OF_VALUES = (ARange, Nonzero, Unique)


def batched_outputs(
    outputs: Sequence[Variable], rows: Mapping[Variable, Variable]
) -> list[Variable]:
    """``outputs`` over the batch ``rows``; what follows from none of its rows is as it was.

    Parameters
    ----------
    outputs
        Those of one row.
    rows
        For each variable that stands for a row the batch of them, with one axis more, in front; or what
        it is in all rows, of its own type.

    Raises
    ------
    NotImplementedError, TypeError
        An op has no form for a batch, and the outputs none for a loop over rows.
    """
    changed = {row: batch for row, batch in rows.items() if row is not batch}
    try:
        batched = vectorized(outputs, changed)
    except (NotImplementedError, TypeError) as error:  # the latter from types without axes
        try:
            return _row_by_row(outputs, changed)
        except (LoopaxError, NotImplementedError, TypeError):
            raise error from None
    if any(map(_may_stack_lengths, nodes_within(changed.values(), batched))):
        try:
            unpadded = [k for k, v in enumerate(batched) if not is_padded(v)]
            row_results = _row_by_row([outputs[k] for k in unpadded], changed)
            return [
                dict(zip(unpadded, row_results, strict=True)).get(k, v)
                for k, v in enumerate(batched)
            ]
        except (LoopaxError, NotImplementedError, TypeError):
            pass  # a generator, say, which a loop over rows would have to hand on: the lengths may be equal
    return batched


def _row_by_row(outputs: Sequence[Variable], rows: Mapping[Variable, Variable]) -> list[Variable]:
    """A loop over the batch; its step is the program of one row."""
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
    """Whether ``node`` stacks what it makes of each row, of lengths that may differ, or loops over such."""
    op = node.op
    if op == EQUAL_STEPS:
        return True
    if any(map(is_padded, node.inputs)):
        return not isinstance(op, KeepRows)  # it is told how many there are
    if not isinstance(op, Blockwise):
        return False
    ndim = op.batch_ndim(node)
    if None not in node.outputs[0].type.shape[ndim:]:
        return False
    return any(row_value(v, ndim) is None for v in _sizes(op.core_op, node))


def _sizes(core_op: Any, node: Apply) -> Sequence[Any]:
    """The inputs of ``node``, a `Blockwise` of ``core_op``, whose values make the lengths of its output."""
    if isinstance(core_op, IncSubtensor):
        return []  # it has those of what is written into
    if isinstance(core_op, AdvancedSubtensor):
        return [v for v in node.inputs[1:] if v.type.dtype == "bool"]
    if isinstance(core_op, _OF_VALUES):
        return node.inputs
    return facts_of(core_op).lengths(CoreNode.of(node))
