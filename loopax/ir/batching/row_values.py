"""Values that all rows of a batch share, as the value of one row.

    Alloc(n, 3)                       of (3,)  ->  n
    Alloc(n, 3) + 1                   of (3,)  ->  n + 1
    Blockwise{Alloc}(x, Alloc(n, 3))           ->  Alloc(x, 3, n)      x of (3,)

PyTensor broadcasts values derived from the shape of a batched array to the batch, and then wraps an
op that takes one as a length in a `Blockwise`, as if each row had its own length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise, vectorize_node_fallback
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import integer_dtypes
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import core_node_and_inputs, vectorize_rules
from loopax.facts import facts_of
from loopax.ir.batching.batch import Batch, vectorized

_DISCRETE = (*integer_dtypes, "bool")  # the dtypes of lengths, positions and masks


def row_value(v: TensorVariable, ndim: int) -> Any:
    """The value of ``v`` at every index into its first ``ndim`` axes; None if its graph shows none."""
    return _RowValues()(v, ndim)


def shared_row(data: np.ndarray, ndim: int) -> Any:
    """The row that an array repeats along its first ``ndim`` axes; None where there is no such row.

    Equal is bit by bit: NaN is equal to itself, and -0.0 is not 0.0.
    """
    n_rows = math.prod(data.shape[:ndim])
    if not n_rows:
        return None
    rows = np.ascontiguousarray(data).reshape(n_rows, *data.shape[ndim:])
    bits = rows.reshape(n_rows, -1)
    bits = bits if data.dtype == object else bits.view(np.uint8)  # an object is a symbolic length
    is_shared = (bits[0] == bits[-1]).all() and (bits == bits[0]).all()  # most differ at the ends
    return rows[0] if is_shared else None


class _RowValues:
    """Computes each `row_value` once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, int], Any] = {}

    def __call__(self, v: Any, ndim: int) -> Any:
        if (v, ndim) not in self._known:
            self._known[v, ndim] = self._compute(v, ndim)
        return self._known[v, ndim]

    def _compute(self, v: TensorVariable, ndim: int) -> Any:
        if _has_length_1(v, ndim):
            return v.dimshuffle(*range(ndim, v.type.ndim)) if ndim else v
        if isinstance(v, Constant):
            row = shared_row(v.data, ndim)
            return None if row is None else pt.constant(row, dtype=v.type.dtype)
        return None if v.owner is None else _row_of(v.owner.op, v, v.owner.inputs, ndim, self)


@singledispatch
def _row_of(op: Op, v: Variable, inputs: Sequence[Variable], ndim: int, row_of: _RowValues) -> Any:
    """The `row_value` of ``v``, an output of ``op``: by the same op with fewer leading axes."""
    node: Any = v.owner
    facts = facts_of(op)
    axes, core = facts.axes(node), facts.behind(node, -ndim)
    if axes is None or core is None:
        return None
    leading = list(range(ndim))

    def row(x: Variable, input_axes: Sequence[int | None]) -> Any:
        if list(input_axes[:ndim]) == leading:
            return row_of(x, ndim)
        is_whole = all(k is None for k in input_axes)
        return x if is_whole else None

    return _applied(
        core, v, [row(x, input_axes) for x, input_axes in zip(inputs, axes, strict=True)]
    )


@_row_of.register
def _(op: Blockwise, v: Variable, inputs: Sequence[Variable], ndim: int, row_of: _RowValues) -> Any:
    is_same_batch = op.batch_ndim(v.owner) == ndim
    return _applied(op.core_op, v, [row_of(x, ndim) for x in inputs]) if is_same_batch else None


@_row_of.register
def _(
    op: CheckAndRaise, v: Variable, inputs: Sequence[Variable], ndim: int, row_of: _RowValues
) -> Any:
    return _applied(op, v, [row_of(inputs[0], ndim), *inputs[1:]])


@_row_of.register
def _(op: Alloc, v: Variable, inputs: Sequence[Variable], ndim: int, row_of: _RowValues) -> Any:
    x, lengths = inputs[0], inputs[1 + ndim :]
    row = row_of(x, max(x.type.ndim - len(lengths), 0))
    return pt.alloc(row, *lengths) if row is not None and lengths else row


@_row_of.register
def _(
    op: DimShuffle, v: Variable, inputs: Sequence[Variable], ndim: int, row_of: _RowValues
) -> Any:
    leading = [k for k in op.new_order[:ndim] if k != "x"]
    row = row_of(inputs[0], len(leading)) if leading == list(range(len(leading))) else None
    order = [k if k == "x" else k - len(leading) for k in op.new_order[ndim:]]
    return None if row is None else row.dimshuffle(*order)


def _applied(op: Callable[..., Any] | Op, v: Variable, rows: Sequence[Variable | None]) -> Any:
    """Apply ``op`` to ``rows`` for the row value of ``v``; None where a row is None."""
    if v.owner is None or any(row is None for row in rows):
        return None
    result = op(*rows)
    return result[v.owner.outputs.index(v)] if isinstance(result, list | tuple) else result


def unbatch_row_values(graph: FunctionGraph) -> None:
    """Unbatch lengths, positions and masks that all rows of a batch share in ``graph``, in place.

    Values of any dtype whose batch axes have length 1 are unbatched too.
    """
    if not any(isinstance(node.op, Blockwise) for node in graph.apply_nodes):
        return
    row_of = _RowValues()
    for node in graph.toposort():
        outputs = _unbatched(node, row_of) if isinstance(node.op, Blockwise) else None
        if outputs is not None:
            pairs = list(zip(node.outputs, outputs, strict=True))
            graph.replace_all(pairs, import_missing=True, reason="unbatch_row_values")


def _unbatched(node: Apply, row_of: _RowValues) -> list[Variable] | None:
    """The outputs of ``node``, a `Blockwise`; None where its rows share no integer or mask."""
    op: Any = node.op
    ndim = op.batch_ndim(node)
    ones = [_has_length_1(v, ndim) for v in node.inputs]
    rows = [
        row_of(v, ndim) if is_one or v.type.dtype in _DISCRETE else None
        for v, is_one in zip(node.inputs, ones, strict=True)
    ]
    if all(is_one or row is None for row, is_one in zip(rows, ones, strict=True)):
        return None
    core, dummies = core_node_and_inputs(op, node.inputs)
    inputs = [v if row is None else row for v, row in zip(node.inputs, rows, strict=True)]
    old_batch, new_batch = Batch(dummies, node.inputs), Batch(dummies, inputs)
    if not new_batch.ndim:
        outputs = op.core_op.make_node(*inputs).outputs
        return [old_batch.full(v, c.type) for v, c in zip(outputs, core.outputs, strict=True)]
    if new_batch.static != old_batch.static:
        # Not the result, in which a batch axis may have a length of 1 that is not static.
        inputs = old_batch.all_full(inputs, dummies, new_batch.batched)
    if vectorize_rules.dispatch(type(op.core_op)) is vectorize_node_fallback:
        return list(op.make_node(*inputs).outputs)  # this keeps the signature and the name
    return vectorized(core.outputs, dict(zip(dummies, inputs, strict=True)))


def _has_length_1(v: Variable, ndim: int) -> bool:
    """Whether each of the first ``ndim`` axes of ``v`` has a static length of 1."""
    return all(n == 1 for n in v.type.shape[:ndim])
