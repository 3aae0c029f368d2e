"""What is the same in all rows of a batch, as the value of one row.

    Alloc(n, 3)                       of (3,)  ->  n
    Alloc(n, 3) + 1                   of (3,)  ->  n + 1
    Blockwise{Alloc}(x, Alloc(n, 3))           ->  Alloc(x, 3, n)      x of (3,)

PyTensor broadcasts to the batch what follows from the shape of a batched array, and then puts a `Blockwise`
around an op that makes a length of it, as if each row had a length of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import _vectorize_node
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.blockwise import Blockwise, vectorize_node_fallback
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import integer_dtypes

from loopax.ir.batching.batch import Batch, vectorized
from loopax.ir.compat import axis_of, joined_by

_DISCRETE = (*integer_dtypes, "bool")  # what lengths, positions and masks are made of


def row_value(v: Any, ndim: int) -> Any:
    """A variable with the value that ``v`` has at each index into its first ``ndim`` axes.

    None where the graph of ``v`` does not show that it has one value there.
    """
    if _is_one(v, ndim):
        return v.dimshuffle(*range(ndim, v.type.ndim)) if ndim else v
    if isinstance(v, Constant):
        rows = v.data.reshape(-1, *v.data.shape[ndim:])
        is_one = len(rows) > 0 and bool((rows == rows[:1]).all())
        return pt.constant(rows[0], dtype=v.type.dtype) if is_one else None
    return None if v.owner is None else _row_made(v.owner.op, v, v.owner.inputs, ndim)


@singledispatch
def _row_made(op: Any, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    """`row_value` of ``v``, which ``op`` makes of ``inputs``."""
    return None


@_row_made.register
def _(op: Elemwise, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    return _applied(op, v, [row_value(x, ndim) for x in inputs])


@_row_made.register
def _(op: Blockwise, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    same = op.batch_ndim(v.owner) == ndim
    return _applied(op.core_op, v, [row_value(x, ndim) for x in inputs]) if same else None


@_row_made.register
def _(op: CheckAndRaise, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    return _applied(op, v, [row_value(inputs[0], ndim), *inputs[1:]])


@_row_made.register
def _(op: Alloc, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    x, lengths = inputs[0], inputs[1 + ndim :]
    row = row_value(x, max(x.type.ndim - len(lengths), 0))
    return pt.alloc(row, *lengths) if row is not None and lengths else row


@_row_made.register
def _(op: DimShuffle, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    kept = [k for k in op.new_order[:ndim] if k != "x"]
    row = row_value(inputs[0], len(kept)) if kept == list(range(len(kept))) else None
    order = [k if k == "x" else k - len(kept) for k in op.new_order[ndim:]]
    return None if row is None else row.dimshuffle(*order)


@_row_made.register
def _(op: Subtensor, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    if len(op.idx_list) < ndim or any(k != slice(None) for k in op.idx_list[:ndim]):
        return None
    return _applied(Subtensor(op.idx_list[ndim:]), v, [row_value(inputs[0], ndim), *inputs[1:]])


@_row_made.register
def _(op: CAReduce, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    if op.axis is None or min(op.axis, default=ndim) < ndim:
        return None
    core_op = op.clone(axis=tuple(k - ndim for k in op.axis))
    return _applied(core_op, v, [row_value(inputs[0], ndim)])


@_row_made.register
def _(op: Join, v: Any, inputs: Sequence[Any], ndim: int) -> Any:
    axis = axis_of(v.owner)
    if axis is None or axis < ndim:
        return None
    rows = [row_value(x, ndim) for x in joined_by(op, inputs)]
    return None if any(row is None for row in rows) else pt.join(axis - ndim, *rows)


def _applied(op: Any, v: Variable, rows: Sequence[Any]) -> Any:
    """What ``op`` makes of ``rows`` in the place of ``v``; None where there is no row of one of them."""
    if v.owner is None or any(row is None for row in rows):
        return None
    return op.make_node(*rows).outputs[v.owner.outputs.index(v)]


def unbatch_equal_integers(graph: FunctionGraph) -> None:
    """Take integers that are the same in all rows out of the batches of ``graph``, in place."""
    if not any(isinstance(node.op, Blockwise) for node in graph.apply_nodes):
        return
    for node in graph.toposort():
        new = _with_unbatched_integers(node) if isinstance(node.op, Blockwise) else None
        if new is not None:
            pairs = list(zip(node.outputs, new, strict=True))
            graph.replace_all(pairs, import_missing=True, reason="unbatch_equal_integers")


def _with_unbatched_integers(node: Apply) -> list[Variable] | None:
    """The outputs of ``node``, a `Blockwise`; None where no integer is the same in all of its rows."""
    op: Any = node.op
    ndim = op.batch_ndim(node)
    # What has length 1 in the batch leaves it too, once anything does: then there may be no batch left.
    rows = [
        row_value(v, ndim) if _is_one(v, ndim) or v.type.dtype in _DISCRETE else None
        for v in node.inputs
    ]
    if all(row is None or _is_one(v, ndim) for v, row in zip(node.inputs, rows, strict=True)):
        return None
    core, row = op._create_dummy_core_node(node.inputs, return_dummy_inputs=True)
    inputs = [v if row is None else row for v, row in zip(node.inputs, rows, strict=True)]
    before, after = Batch(row, node.inputs), Batch(row, inputs)
    if not after.ndim:
        made = op.core_op.make_node(*inputs).outputs
    elif _vectorize_node.dispatch(type(op.core_op)) is vectorize_node_fallback:
        made = op.make_node(*inputs).outputs  # it keeps the signature and the name
    else:
        made = vectorized(core.outputs, dict(zip(row, inputs, strict=True)))
    if after.static == before.static:
        return list(made)
    return [before.full(v, c.type) for v, c in zip(made, core.outputs, strict=True)]


def _is_one(v: Any, ndim: int) -> bool:
    return all(n == 1 for n in v.type.shape[:ndim])
