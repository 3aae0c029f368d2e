"""The rules of `loopax.lowering.fission.row_wise` for ops of which the record does not say it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import discrete_dtypes

from loopax.base.upstream.pytensor import axis_of, joined_by
from loopax.facts import Errors
from loopax.facts.axes import shuffled
from loopax.facts.shapes import entries_of
from loopax.ir.effects import errors, is_open
from loopax.lowering.analysis.equal_rows import repeated
from loopax.lowering.fission.row_wise import RowWise, as_it_is, deepened, index_of, row_wise_rule

# -- products ----------------------------------------------------------------------------------------


@row_wise_rule.register(Dot)
def _dot(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    a, b = node.inputs
    if node.outputs[0].type.dtype in discrete_dtypes:
        return None
    row, column = a.type.shape[0] == 1, b.type.shape[1] == 1
    if all(varies):
        if row or column or a.type.shape[1] == 1:
            return RowWise(lambda inputs, n: [_products(node, *inputs)])
    elif varies[0] and row:
        return RowWise(lambda inputs, n: [_rows_times(inputs[0], inputs[1])])
    elif varies[1] and column:
        return RowWise(lambda inputs, n: [_times_rows(inputs[0], inputs[1])])
    if not known:
        return None
    return RowWise(lambda inputs, n: [Blockwise(Dot())(*inputs)])


def _rows_times(a: Any, b: Any) -> Any:
    """The product of rows ``a``, as matrices of one row, with ``b``: one product."""
    return shuffled(Dot()(shuffled(a, [0, 2]), b), [0, "x", 1])


def _times_rows(a: Any, b: Any) -> Any:
    return shuffled(Dot()(shuffled(b, [0, 1]), shuffled(a, [1, 0])), [0, 1, "x"])


def _products(node: Any, a: Any, b: Any) -> Any:
    """The products of pairs of matrices, where one is a row or a column."""
    (m, d), k = node.inputs[0].type.shape, node.inputs[1].type.shape[1]
    if d == 1:
        return a * b
    if k == 1:
        along = [0, 1] if m == 1 else [0, "x", 1]
        a = shuffled(a, [0, 2]) if m == 1 else a
        order = [0, "x", "x"] if m == 1 else [0, 1, "x"]
        return shuffled(_summed(a * shuffled(b, along), -1), order)
    return shuffled(_summed(shuffled(a, [0, 2, "x"]) * b, 1), [0, "x", 1])


def _summed(x: Any, axis: int) -> Any:
    return pt.sum(x, axis=axis, dtype=x.type.dtype, acc_dtype=x.type.dtype)


@row_wise_rule.register(Blockwise)
def _blockwise(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    if not known or not isinstance(op.core_op, Dot):
        return None
    return as_it_is(node)


# -- indices -----------------------------------------------------------------------------------------


@row_wise_rule.register(Subtensor)
def _subtensor(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    index = index_of(node)
    return None if index is None else RowWise(lambda inputs, n: [inputs[0][(slice(None), *index)]])


@row_wise_rule.register(IncSubtensor)
def _inc_subtensor(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    index = index_of(node, skipped=2)
    if index is None:
        return None
    x, y = node.inputs[:2]
    write = pt.set_subtensor if op.set_instead_of_inc else pt.inc_subtensor

    def make(inputs: list[Any], n: Any) -> list[Any]:
        whole = inputs[0] if varies[0] else repeated(inputs[0], n)
        place = whole[(slice(None), *index)]
        return [write(place, deepened(inputs[1], varies[1], y, place.type.ndim - 1))]

    return RowWise(make)


# -- shapes, and what is put together ----------------------------------------------------------------


@row_wise_rule.register(Shape)
def _shape(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise:
    return RowWise(lambda inputs, n: [inputs[0].shape[1:]], varies=False)


@row_wise_rule.register(Shape_i)
def _shape_i(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise:
    return RowWise(lambda inputs, n: [inputs[0].shape[op.i + 1]], varies=False)


@row_wise_rule.register(SpecifyShape)
def _specify_shape(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    if any(varies[1:]):
        return None
    return RowWise(lambda inputs, n: list(op.make_node(inputs[0], None, *inputs[1:]).outputs))


@row_wise_rule.register(Reshape)
def _reshape(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    asked = entries_of(node.inputs[1])
    if varies[1] or asked is None or Errors.LENGTH in errors(node):
        return None
    open_axes = [k for k, v in enumerate(asked) if is_open(v)]

    def make(inputs: list[Any], n: Any) -> list[Any]:
        x, shape = inputs
        entries = entries_of(shape)
        dims = entries if entries is not None else [shape[k] for k in range(len(asked))]
        for k in open_axes:  # of no rows nobody could tell it
            others = _product([v for j, v in enumerate(dims) if j != k])
            size = _product([x.shape[j] for j in range(1, x.type.ndim)])
            dims = [size // pt.maximum(others, 1) if j == k else v for j, v in enumerate(dims)]
        return [pt.reshape(x, (n, *dims), ndim=len(dims) + 1)]

    return RowWise(make)


def _product(factors: list[Any]) -> Any:
    total = pt.constant(1, dtype="int64")
    for k, v in enumerate(factors):
        total = total * v if k else v
    return total


@row_wise_rule.register(Alloc)
def _alloc(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    if any(varies[1:]) or Errors.LENGTH in errors(node):
        return None
    ndim = node.outputs[0].type.ndim

    def make(inputs: list[Any], n: Any) -> list[Any]:
        value = deepened(inputs[0], True, node.inputs[0], ndim)
        return [pt.alloc(value, n, *inputs[1:])]

    return RowWise(make)


@row_wise_rule.register(MakeVector)
def _make_vector(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise:
    dtype = node.outputs[0].type.dtype

    def make(inputs: list[Any], n: Any) -> list[Any]:
        rows = [x if f else repeated(x, n) for x, f in zip(inputs, varies, strict=True)]
        columns = [pt.cast(x, dtype)[:, None] for x in rows]
        return [pt.join(1, *columns) if len(columns) > 1 else columns[0]]

    return RowWise(make)


@row_wise_rule.register(Join)
def _join(op: Any, node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    axis = axis_of(node)
    if axis is None:
        return None

    def make(inputs: list[Any], n: Any) -> list[Any]:
        rows = zip(joined_by(op, inputs), joined_by(op, varies), strict=True)
        return [pt.join(axis + 1, *(x if f else repeated(x, n) for x, f in rows))]

    return RowWise(make)
