"""Ops on one row -> the same on all rows at once, along a leading axis.

    x[t] @ w  ->  x @ w          x[t].sum(0)  ->  x.sum(1)          x[t][2:]  ->  x[:, 2:]

A rule says whether there is such a form, for given inputs that are rows and others that are the same for
all rows, and how to make it. Only plain ops come out, those that a backend has a fast form of, and only
from ops that cannot raise for the values in a row: what raises for one row must do so at its step. The
rules are in `loopax.lowering.fission.row_wise_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.type import discrete_dtypes

from loopax.lowering.analysis.equal_rows import filled


class RowWise(NamedTuple):
    """How a node is computed for all rows: ``make(inputs, n)``, ``n`` being the number of rows.

    ``varies`` tells whether the outputs differ from row to row, and so have a leading axis.
    """

    make: Callable[[list[Any], Any], list[Any]]
    varies: bool = True


Rule = Callable[[Apply, Sequence[bool], bool], RowWise | None]
_RULES: dict[type, Rule] = {}


def row_wise(node: Apply, varies: Sequence[bool], known: bool) -> RowWise | None:
    """How ``node`` is computed for all rows, given inputs that are rows where ``varies``; None: it is not.

    ``known`` is whether arrays have lengths that a backend knows; a product of stacks of matrices
    needs them.
    """
    if not any(varies):
        return _same_for_all(node) if _is_harmless(node) else None
    for cls in type(node.op).__mro__:
        if cls in _RULES:
            return _RULES[cls](node, varies, known)
    return None


def rule(*op_classes: type) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        _RULES.update((cls, function) for cls in op_classes)
        return function

    return register


# -- the same for all rows ---------------------------------------------------------------------------


def _same_for_all(node: Apply) -> RowWise:
    def make(inputs: list[Any], n: Any) -> list[Any]:
        return list(node.op.make_node(*inputs).outputs)

    return RowWise(make, varies=False)


def _is_harmless(node: Apply) -> bool:
    """Whether ``node``, which no row feeds, may be computed though the loop takes no step."""
    op: Any = node.op
    if isinstance(op, Alloc):
        return all(map(is_length, node.inputs[1:]))
    if isinstance(op, Elemwise):
        return not _may_raise(node)
    if isinstance(op, CAReduce):
        extreme = isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum)
        return not extreme or all(node.inputs[0].type.shape)  # of nothing there is none
    if isinstance(op, Reshape):
        asked = entries_of(node.inputs[1])
        return asked is not None and is_shape(asked)
    if isinstance(op, Subtensor):
        index = index_of(node)
        slices = index is not None and all(isinstance(k, slice) for k in index)
        return slices or isinstance(owner_op(node.inputs[0]), Shape)
    if isinstance(op, ARange):
        return isinstance(node.inputs[2], Constant) and bool(node.inputs[2].data)
    plain = (DimShuffle, Dot, MakeVector, Join, Shape, Shape_i, ScalarFromTensor, TensorFromScalar)
    return isinstance(op, (*plain, ps.ScalarOp)) and not _may_raise(node)


def _may_raise(node: Apply) -> bool:
    """Whether it is an integer to a power, which may be negative."""
    op: Any = node.op
    op = op.scalar_op if isinstance(op, Elemwise) else op
    inner = getattr(op, "fgraph", None)
    nodes = [node] if inner is None else inner.apply_nodes
    return any(
        isinstance(getattr(a.op, "scalar_op", a.op), ps.Pow)
        and a.outputs[0].type.dtype in discrete_dtypes
        for a in nodes
    )


def is_length(v: Any) -> bool:
    """Whether ``v`` is an integer scalar that is 0 or more."""
    if isinstance(v, Constant):
        return bool((v.data >= 0).all())
    op: Any = owner_op(v)
    if isinstance(op, Subtensor):
        return isinstance(owner_op(v.owner.inputs[0]), Shape)
    if isinstance(op, DimShuffle):
        return isinstance(owner_op(v.owner.inputs[0]), Shape)
    if isinstance(op, ScalarFromTensor | TensorFromScalar):
        return is_length(v.owner.inputs[0])
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, ps.Cast):
        return v.type.dtype == "int64" and is_length(v.owner.inputs[0])
    return isinstance(op, Shape_i)


def owner_op(v: Any) -> Any:
    return None if v.owner is None else v.owner.op


# -- indices and shapes -----------------------------------------------------------------------------


def index_of(node: Apply, skipped: int = 1) -> list[Any] | None:
    """The index of ``node``, in Python numbers; None where it is not a constant."""
    op: Any = node.op
    given: list[Any] = node.inputs[skipped:]
    if not all(isinstance(v, Constant) for v in given):
        return None
    numbers: list[Any] = [int(v.data) for v in given]
    return list(indices_from_subtensor(numbers, op.idx_list))


def is_open(v: Any) -> bool:
    return isinstance(v, Constant) and bool((v.data == -1).all())


def is_shape(asked: Sequence[Any]) -> bool:
    """Whether ``asked`` are lengths, of which one may be left open."""
    return all(is_length(v) or is_open(v) for v in asked) and sum(map(is_open, asked)) < 2


def entries_of(shape: Any) -> list[Any] | None:
    """The scalars that the vector ``shape`` is made of."""
    if isinstance(shape, Constant):
        return [pt.constant(int(k), dtype="int64") for k in shape.data]
    return list(shape.owner.inputs) if isinstance(owner_op(shape), MakeVector) else None


# -- rows --------------------------------------------------------------------------------------------


def repeated(x: Any, n: Any) -> Any:
    """``n`` rows that are all ``x``."""
    return filled(x, [n, *(x.shape[k] for k in range(x.type.ndim))])


def shuffled(x: Any, order: Sequence[Any]) -> Any:
    """``x.dimshuffle(order)``, of what ``x`` was shuffled from."""
    while isinstance(op := owner_op(x), DimShuffle):
        order = [k if k == "x" else op.new_order[k] for k in order]
        x = x.owner.inputs[0]
    same = list(order) == list(range(x.type.ndim))
    return x if same else x.dimshuffle(*order)


def one_row(x: Any) -> Any:
    if isinstance(x, Constant):
        return pt.constant(x.data[None], dtype=x.type.dtype)
    return shuffled(x, ["x", *range(x.type.ndim)])


def deepened(x: Any, varies: bool, core: Any, ndim: int) -> Any:
    """``x`` with axes behind that of the rows, so that its rows broadcast to rank ``ndim``."""
    if not varies:
        return x
    axes = range(1, core.type.ndim + 1)
    return shuffled(x, [0, *["x"] * (ndim - core.type.ndim), *axes])
