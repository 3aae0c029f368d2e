"""Pullbacks of products with a sparse matrix: ``pytensor.sparse.dot``, and by a scalar or a row.

PyTensor's pullback contains structured products, whose own derivatives are 0 where the matrix has no
entry, or missing. In 3.0.7 it treats vectors as matrices. `structured_dot` has only a first derivative:
the op that computes it, a sum over rows of ``g`` and ``b`` for each entry of the matrix, has none.
The derivative in a scalar is a matrix in PyTensor before 3.1, which is an error. A structured sum has no
derivative with respect to zero elements of a matrix that was dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.sparse.basic import CSC, CSR
from pytensor.sparse.math import (
    Dot,
    StructuredDotGradCSC,
    StructuredDotGradCSR,
    mul_s_d,
    mul_s_s,
    mul_s_v,
    sp_sum,
    structured_dot,
)
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.inner_gradients import is_sparse
from loopax.ir.derivatives.rules.registry import own_pullback, pullback_of, pushforward_of
from loopax.ir.derivatives.rules.sparse_conversions import is_of_dense
from loopax.ir.derivatives.sparse_types import converted


@pullback_of.register(Dot)
def _pullback(
    op: Dot,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    x, y = inputs
    (g,) = cotangents
    row, column = x.ndim == 1, y.ndim == 1
    g = g[None] if row else g[:, None] if column else g
    of_x = _product(g, y[None] if column else y.T)
    of_y = _product(x[:, None] if row else x.T, g)
    return [converted(of_x[0] if row else of_x, x), converted(of_y[:, 0] if column else of_y, y)]


@pushforward_of.register(Dot)
def _pushforward(
    op: Dot, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable]
) -> Any:
    (x, y), (of_x, of_y) = inputs, tangents
    factors = [(of_x, (of_x, y)), (of_y, (x, of_y))]
    terms = [_product(*pair) for t, pair in factors if not isinstance(t.type, DisconnectedType)]
    return [sum(terms[1:], terms[0]) if terms else disconnected_type()]


@pullback_of.register(StructuredDotGradCSC)
@pullback_of.register(StructuredDotGradCSR)
def _pullback_of_entries(
    op: Op,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    indices, starts, b, g = inputs
    (by_entry,) = cotangents
    shape = pt.stack([g.shape[0], b.shape[0]]).astype("int32")  # as of CSMProperties
    matrix_of = CSC if isinstance(op, StructuredDotGradCSC) else CSR
    matrix: Any = matrix_of(by_entry, indices, starts, shape)
    of_b, of_g = structured_dot(matrix.T, g), structured_dot(matrix, b)
    return [disconnected_type(), disconnected_type(), of_b, of_g]


@pullback_of.register(type(mul_s_d))
@pullback_of.register(type(mul_s_v))
def _pullback_by_element(
    op: Op,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable],
) -> Any:
    """The pullback of a product of a sparse matrix by a scalar, or of its columns by a row."""
    x, y = inputs
    if y.ndim == 2:
        return own_pullback(op, inputs, outputs, cotangents)
    (g,) = cotangents
    product: Any = mul_s_s(x, g)
    axis = 0 if y.ndim else None
    of_y = sp_sum(product, axis=axis, sparse_grad=not is_of_dense(product))
    of_x: Any = op(g, y)
    return [converted(of_x, x), converted(of_y, y)]


def _product(x: Variable, y: Variable) -> Any:
    return Dot()(x, y) if is_sparse(x) or is_sparse(y) else pt.dot(x, y)
