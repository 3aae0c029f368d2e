"""What is the same in all rows of a batch, as the value of one row.

    Alloc(n, 3)                       of (3,)  ->  n
    Alloc(n, 3) + 1                   of (3,)  ->  n + 1
    Blockwise{Alloc}(x, Alloc(n, 3))           ->  Alloc(x, 3, n)      x of (3,)

PyTensor broadcasts to the batch what follows from the shape of a batched array, and then puts a `Blockwise`
around an op that makes a length of it, as if each row had a length of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise, vectorize_node_fallback
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import integer_dtypes

from loopax.base.upstream.pytensor import vectorize_rules
from loopax.facts import facts_of
from loopax.ir.batching.batch import Batch, vectorized

_DISCRETE = (*integer_dtypes, "bool")  # what lengths, positions and masks are made of


def row_value(v: Any, ndim: int) -> Any:
    """A variable with the value that ``v`` has at each index into its first ``ndim`` axes.

    None where the graph of ``v`` does not show that it has one value there.
    """
    return _RowValues()(v, ndim)


def shared_row(data: Any, ndim: int) -> Any:
    """The row that an array repeats along its first ``ndim`` axes; None where rows differ, or are none."""
    n_rows = math.prod(data.shape[:ndim])
    rows = data.reshape(n_rows, *data.shape[ndim:])
    return rows[0] if n_rows and (rows == rows[:1]).all() else None


class _RowValues:
    """`row_value`, made once for each variable."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, int], Any] = {}

    def __call__(self, v: Any, ndim: int) -> Any:
        if (v, ndim) not in self._known:
            self._known[v, ndim] = self._made(v, ndim)
        return self._known[v, ndim]

    def _made(self, v: Any, ndim: int) -> Any:
        if _has_length_1(v, ndim):
            return v.dimshuffle(*range(ndim, v.type.ndim)) if ndim else v
        if isinstance(v, Constant):
            row = shared_row(v.data, ndim)
            return None if row is None else pt.constant(row, dtype=v.type.dtype)
        return None if v.owner is None else _row_made(v.owner.op, v, v.owner.inputs, ndim, self)


@singledispatch
def _row_made(op: Any, v: Any, inputs: Sequence[Any], ndim: int, row_of: _RowValues) -> Any:
    """`row_value` of ``v``, which ``op`` makes of ``inputs``: by the op behind fewer axes."""
    node: Any = v.owner
    facts = facts_of(op)
    axes, core = facts.axes(node), facts.behind(node, -ndim)
    if axes is None or core is None:
        return None
    leading = list(range(ndim))

    def row(x: Any, own: Sequence[int | None]) -> Any:
        if list(own[:ndim]) == leading:
            return row_of(x, ndim)
        is_whole = all(k is None for k in own)
        return x if is_whole else None

    return _applied(core, v, [row(x, own) for x, own in zip(inputs, axes, strict=True)])


@_row_made.register
def _(op: Blockwise, v: Any, inputs: Sequence[Any], ndim: int, row_of: _RowValues) -> Any:
    same = op.batch_ndim(v.owner) == ndim
    return _applied(op.core_op, v, [row_of(x, ndim) for x in inputs]) if same else None


@_row_made.register
def _(op: CheckAndRaise, v: Any, inputs: Sequence[Any], ndim: int, row_of: _RowValues) -> Any:
    return _applied(op, v, [row_of(inputs[0], ndim), *inputs[1:]])


@_row_made.register
def _(op: Alloc, v: Any, inputs: Sequence[Any], ndim: int, row_of: _RowValues) -> Any:
    x, lengths = inputs[0], inputs[1 + ndim :]
    row = row_of(x, max(x.type.ndim - len(lengths), 0))
    return pt.alloc(row, *lengths) if row is not None and lengths else row


@_row_made.register
def _(op: DimShuffle, v: Any, inputs: Sequence[Any], ndim: int, row_of: _RowValues) -> Any:
    kept = [k for k in op.new_order[:ndim] if k != "x"]
    row = row_of(inputs[0], len(kept)) if kept == list(range(len(kept))) else None
    order = [k if k == "x" else k - len(kept) for k in op.new_order[ndim:]]
    return None if row is None else row.dimshuffle(*order)


def _applied(op: Any, v: Variable, rows: Sequence[Any]) -> Any:
    """What ``op`` makes of ``rows`` in the place of ``v``; None where there is no row of one of them."""
    if v.owner is None or any(row is None for row in rows):
        return None
    made = op(*rows)
    return made[v.owner.outputs.index(v)] if isinstance(made, list | tuple) else made


def unbatch_row_values(graph: FunctionGraph) -> None:
    """Take what rows share out of the batches of ``graph``, in place: lengths, positions and masks.

    With it goes what has length 1 in a batch, of any dtype.
    """
    if not any(isinstance(node.op, Blockwise) for node in graph.apply_nodes):
        return
    row_of = _RowValues()
    for node in graph.toposort():
        new = _unbatched(node, row_of) if isinstance(node.op, Blockwise) else None
        if new is not None:
            pairs = list(zip(node.outputs, new, strict=True))
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
    core, dummies = op._create_dummy_core_node(node.inputs, return_dummy_inputs=True)
    inputs = [v if row is None else row for v, row in zip(node.inputs, rows, strict=True)]
    before, after = Batch(dummies, node.inputs), Batch(dummies, inputs)
    if not after.ndim:
        made = op.core_op.make_node(*inputs).outputs
        return [before.full(v, c.type) for v, c in zip(made, core.outputs, strict=True)]
    if after.static != before.static:
        # Not the result, in which an axis of the batch may have a length of 1 that is no number.
        inputs = before.all_full(inputs, dummies, after.batched)
    if vectorize_rules.dispatch(type(op.core_op)) is vectorize_node_fallback:
        return list(op.make_node(*inputs).outputs)  # it keeps the signature and the name
    return vectorized(core.outputs, dict(zip(dummies, inputs, strict=True)))


def _has_length_1(v: Any, ndim: int) -> bool:
    """Whether each of the first ``ndim`` axes of ``v`` has, by its type."""
    return all(n == 1 for n in v.type.shape[:ndim])
