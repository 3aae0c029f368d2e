"""Ops on one row -> equal ops on all rows at once, along a leading axis.

    x[t] @ w  ->  x @ w          x[t].sum(0)  ->  x.sum(1)          x[t][2:]  ->  x[:, 2:]

The form for all rows is the op vectorized over a batch, from `loopax.ir.batching`, and for a product one
product, or elementwise operations and a sum. The results are plain ops, for which a backend has a fast
form, and only ops that cannot raise for the values in a row qualify: an error of one row must come at its
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import discrete_dtypes
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import axis_of
from loopax.facts import Errors, Structure, facts_of
from loopax.facts.axes import shuffled
from loopax.facts.shapes import entries_of
from loopax.ir.batching.array_ops import batched_outputs
from loopax.ir.effects import errors


def is_row_wise(node: Apply, varies: Sequence[bool], known: bool) -> bool:
    """Whether ``node`` has a plain form for all rows, with inputs that are rows where ``varies``.

    ``known`` is whether arrays have lengths that a backend knows; a product of stacks of matrices
    needs them.
    """
    op, kinds = node.op, errors(node)
    if not any(varies):
        # It will run even if the loop takes no step, so it may raise only for shapes that never fit.
        return not kinds & ~Errors.SHAPE
    facts = facts_of(op)
    match op:
        case Dot():
            is_float = node.outputs[0].type.dtype not in discrete_dtypes
            return is_float and (known or _product_form(node, varies) is not None)
        case Blockwise():
            return known and isinstance(op.core_op, Dot)
        case Subtensor() | IncSubtensor():
            first = 1 if isinstance(op, Subtensor) else 2
            return all(isinstance(v, Constant) for v in node.inputs[first:])
        case SpecifyShape():
            return not any(varies[1:])
        case Reshape() | Alloc():
            is_known = isinstance(op, Alloc) or entries_of(node.inputs[1]) is not None
            return is_known and not any(varies[1:]) and Errors.LENGTH not in kinds
        case Join():
            return axis_of(node) is not None
        case MakeVector():
            return True
    if facts.structure is Structure.SHAPE:
        return True
    has_form = facts.behind(node, 1) is not None
    if facts.structure is Structure.ELEMENTWISE:
        return has_form
    return has_form and len(node.inputs) == 1 and not kinds & (Errors.INDEX | Errors.VALUE)


def outputs_of_rows(node: Apply, inputs: Sequence[Variable]) -> list[Any]:
    """The outputs of ``node`` for all rows, or for one row if no input varies."""
    if isinstance(node.op, DimShuffle):  # a shuffle of a shuffle is a single shuffle
        return [facts_of(node.op).behind(node, inputs[0].type.ndim - node.op.input_ndim)(*inputs)]
    if not isinstance(node.op, Dot):
        return batched_outputs(node, inputs)
    varies = [x.type.ndim > v.type.ndim for v, x in zip(node.inputs, inputs, strict=True)]
    form = _product_form(node, varies) if any(varies) else node.op
    return [(form or Blockwise(node.op))(*inputs)]


# -- products ----------------------------------------------------------------------------------------


def _product_form(node: Apply, varies: Sequence[bool]) -> Callable[[Any, Any], Any] | None:
    """The products of all rows as a function of the factors; None if that takes stacks of matrices."""
    a, b = node.inputs
    (n_rows, n_terms), n_columns = a.type.shape, b.type.shape[1]
    if all(varies):
        return partial(_products, node) if 1 in (n_rows, n_terms, n_columns) else None
    if varies[0]:
        return _rows_times if n_rows == 1 else None
    return _times_columns if n_columns == 1 else None


def _rows_times(a: Variable, b: Variable) -> Any:
    """Multiply the rows ``a``, as matrices of one row, by ``b`` in one product."""
    return shuffled(Dot()(shuffled(a, [0, 2]), b), [0, "x", 1])


def _times_columns(a: Variable, b: Variable) -> Any:
    return shuffled(Dot()(shuffled(b, [0, 1]), shuffled(a, [1, 0])), [0, 1, "x"])


def _products(node: Apply, a: TensorVariable, b: Variable) -> Any:
    """Multiply pairs of matrices, one of which is a row or a column."""
    (m, d), k = node.inputs[0].type.shape, node.inputs[1].type.shape[1]
    if d == 1:
        return a * b
    if k == 1:
        along = [0, 1] if m == 1 else [0, "x", 1]
        a = shuffled(a, [0, 2]) if m == 1 else a
        order = [0, "x", "x"] if m == 1 else [0, 1, "x"]
        return shuffled(_summed(a * shuffled(b, along), -1), order)
    return shuffled(_summed(shuffled(a, [0, 2, "x"]) * b, 1), [0, "x", 1])


def _summed(x: Variable, axis: int) -> Any:
    return pt.sum(x, axis=axis, dtype=x.type.dtype, acc_dtype=x.type.dtype)
