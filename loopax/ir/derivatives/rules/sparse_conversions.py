"""Conversions of matrices between dense and sparse.

The tangent of a conversion to a sparse matrix has entries wherever the tangent's own elements are nonzero.
The transpose of PyTensor's pullback has only the entries of the value, and loses tangents of elements that
are 0 (3.0.7, 3.3.8).

The derivative of a conversion back is *structured* by default: PyTensor drops the cotangents of elements
without an entry. A sparse input of a program has no elements there. A matrix that was dense does, and an
element that happens to be 0 need not have a derivative of 0: its cotangent is kept.

The pullback of building a matrix from entries reads the cotangent's elements at these entries. That is
linear in the cotangent, and its transpose builds a matrix from entries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import walk
from pytensor.sparse.basic import CSMGrad, DenseFromSparse, SparseFromDense

from loopax.ir.derivatives.inner_gradients import is_sparse
from loopax.ir.derivatives.rules.registry import own_pullback, pullback_of, pushforward_of
from loopax.ir.derivatives.sparse_types import converted


@pushforward_of.register(SparseFromDense)
def _sparse_from_dense(
    op: SparseFromDense,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    tangents: Sequence[Variable],
) -> Any:
    (tangent,) = tangents
    return [disconnected_type() if isinstance(tangent.type, DisconnectedType) else op(tangent)]


@pullback_of.register(DenseFromSparse)
def _dense_from_sparse(
    op: DenseFromSparse,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    (matrix,) = inputs
    if not (op.sparse_grad and is_of_dense(matrix)):
        return own_pullback(op, inputs, outputs, cotangents)
    return [converted(cotangents[0], matrix)]


@pullback_of.register(CSMGrad)
def _elements_at_entries(
    op: CSMGrad,
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    in_cotangents: list[Any] = [disconnected_type() for _ in inputs]
    (_, *places), matrix = inputs[:4], inputs[4:]
    operands = [*matrix, *cotangents, *places]
    # The op itself would type the result like the cotangent, which may have another static length.
    in_cotangents[4] = Apply(op, operands, [matrix[0].type()]).outputs[0]
    return in_cotangents


def is_of_dense(matrix: Variable) -> bool:
    """Whether the entries of a sparse matrix are the nonzero elements of a dense matrix."""

    def sparse_operands(v: Variable) -> list[Any]:
        return [] if v.owner is None else [x for x in v.owner.inputs if is_sparse(x)]

    return any(
        v.owner is not None and isinstance(v.owner.op, SparseFromDense)
        for v in walk([matrix], sparse_operands)
    )
