"""Batched `Cond` and `KeepRows`: rules for PyTensor's ``vectorize_graph``.

The rules for `Scan` are in `vectorize_scan`, the rules for typed lists in `vectorize_lists`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.type import Type
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import vectorize_rules
from loopax.facts.record import is_foreign
from loopax.ir.batching import vectorize_lazy, vectorize_lists, vectorize_scan  # noqa: F401  (they register their rules)
from loopax.ir.batching.batch import Batch, greatest, vectorized
from loopax.ir.batching.row_loop import row_by_row
from loopax.ir.ops.calling_convention import FLAG_TYPE
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.inner_graph_op import core_of, nodes_within
from loopax.ir.ops.rows import KeepRows
from loopax.ir.ops.scan import Scan

# -- Cond --------------------------------------------------------------------------------------------


@vectorize_rules.register(Cond)
def vectorize_cond(op: Cond, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    """A batched Cond: a Cond if all rows share the condition, else both branches and a selection.

    Where a branch has a check, or more than elementwise operations, it becomes a loop over the rows, each
    of which runs its own branch.
    """
    batch = Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    body, n = op.unfrozen(), op.n_outs
    replace = {
        v: batch.type(v.type)() if f else v
        for v, f in zip(body.inputs, batch.batched[1:], strict=True)
    }
    condition = inputs[0]
    operands = batch.all_full(inputs[1:], body.inputs, batch.batched[1:])
    cores = [v.type for v in node.outputs]
    if (
        batch.batched[0]
        and batch.ndim == 1
        and any(map(_is_dear, nodes_within(body.inputs, body.outputs)))
    ):
        return _row_by_row(op, batch, condition, operands)
    if batch.batched[0]:
        outs = vectorized(body.outputs, dict(zip(body.inputs, operands, strict=True)))
        return [
            _selected(batch, condition, a, b, core)
            for a, b, core in zip(outs[:n], outs[n:], cores, strict=True)
        ]
    inside = batch.inside(next(x for v, x in replace.items() if x is not v))
    outs = [
        inside.full(out, core) if isinstance(core, TensorType) else out
        for out, core in zip(vectorized(body.outputs, replace), cores * 2, strict=True)
    ]
    cond = op.with_branches([replace[v] for v in body.inputs], outs[:n], outs[n:])
    return cond.bind(condition, operands)


def _is_dear(node: Apply) -> bool:
    """Whether ``node`` is a loop, linear algebra, a check, or an op of another library."""
    op = core_of(node.op)
    is_linalg = type(op).__module__.startswith("pytensor.tensor.linalg")
    return is_linalg or isinstance(op, Scan | CheckAndRaise) or is_foreign(type(op))


def _row_by_row(
    op: Cond, batch: Batch, condition: Variable, operands: Sequence[Variable]
) -> list[Any]:
    flag, row = FLAG_TYPE(), [v.type() for v in op.fgraph.inputs]
    rows = {flag: batch.full(condition, FLAG_TYPE), **dict(zip(row, operands, strict=True))}
    return row_by_row(op.bind(flag, row), rows, batch.shape[0], op.name)


def _selected(batch: Batch, condition: Variable, a: Variable, b: Variable, core: Type) -> Any:
    if not isinstance(core, TensorType):
        raise NotImplementedError(
            "A condition with a value for each row of a batch chooses between two values of type "
            f"{core}, which have no rows. Move these values out of the branches, or use one condition "
            "for all rows."
        )
    mask = pt.expand_dims(
        batch.full(condition, TensorType("bool", ())),
        tuple(range(batch.ndim, batch.ndim + core.ndim)),
    )
    return pt.switch(mask, batch.full(a, core), batch.full(b, core))


# -- KeepRows ----------------------------------------------------------------------------------------


@vectorize_rules.register(KeepRows)
def vectorize_keep_rows(op: KeepRows, node: Apply, *inputs: TensorVariable) -> Sequence[Variable]:
    """A batched KeepRows: each row keeps its own count, and all get the greatest length."""
    batch = Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    rows, count, length = inputs
    longest = greatest(length)
    rows = pt.moveaxis(batch.full(rows, node.inputs[0].type), batch.ndim, 0)
    fitted = op(rows, greatest(count), longest)
    index = pt.arange(longest).dimshuffle(0, *["x"] * batch.ndim)
    count = pt.minimum(count, length)
    mask = index >= longest - count if op.last else index < count
    mask = mask.dimshuffle(*range(mask.type.ndim), *["x"] * (rows.type.ndim - mask.type.ndim))
    result = pt.switch(mask, fitted, pt.zeros((), dtype=rows.type.dtype))
    return [pt.moveaxis(result, 0, batch.ndim)]
