"""Outputs over a batch of their inputs: all rows at once, or row by row in a loop.

PyTensor's ``vectorize_graph`` computes all rows at once. Two kinds of programs have no such form, and
become a `Scan` over the rows, whose step is the program of one row:

- values whose length depends on values, ``x[x > 0]``, ``x[:n]``, ``arange(n)``, or the trace of a
loop that stops: the length differs from row to row, and no array holds the rows;
- functions of values without axes: typed lists, sparse matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from loopax.base.errors import LoopaxError
from loopax.frontend.loops.map_reduce import map as map_rows
from loopax.ir.batching.batch import vectorized
from loopax.ir.batching.value_lengths import is_padded, may_stack_lengths
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.replace import replaced
from loopax.ir.sequences import with_items


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
    if any(map(may_stack_lengths, nodes_within(changed.values(), batched))):
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
