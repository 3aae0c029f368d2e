"""``dot_general``: products of matrices, with batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from loopax.frontend.from_jaxpr.reading import out_dtype, rule
from loopax.frontend.from_jaxpr.shapes import reshaped

if TYPE_CHECKING:
    from loopax.base.upstream.jax import JaxprEqn


@rule("dot_general")
def _dot_general(eqn: JaxprEqn, x: TensorVariable, y: TensorVariable) -> Any:
    """A product of matrices, with the axes in the order batches, rows, columns."""
    (x_summed, y_summed), (x_batch, y_batch) = eqn.params["dimension_numbers"]
    # Factors more precise than the product, as in softmax attention, are rounded after the sum.
    dtype = np.result_type(x.type.dtype, y.type.dtype, out_dtype(eqn)).name
    x, y = x.astype(dtype), y.astype(dtype)
    x_free = [k for k in range(x.type.ndim) if k not in (*x_summed, *x_batch)]
    y_free = [k for k in range(y.type.ndim) if k not in (*y_summed, *y_batch)]
    sizes = x.type.shape, y.type.shape
    batch = [sizes[0][k] for k in x_batch]
    rows, columns = [sizes[0][k] for k in x_free], [sizes[1][k] for k in y_free]
    summed = math.prod(sizes[0][k] for k in x_summed)
    shape = (*batch, *rows, *columns)
    if not summed:
        return pt.zeros(shape, dtype=out_dtype(eqn))
    left = reshaped(x.dimshuffle([*x_batch, *x_free, *x_summed]), (*batch, math.prod(rows), summed))
    right = reshaped(
        y.dimshuffle([*y_batch, *y_summed, *y_free]), (*batch, summed, math.prod(columns))
    )
    return reshaped(_product(left, right, dtype), shape).astype(out_dtype(eqn))


def _product(left: Any, right: Any, dtype: str) -> Any:
    """A matrix product ``(*b, n, k), (*b, k, m) -> (*b, n, m)``."""
    *batch, n, k = left.type.shape
    m = right.type.shape[-1]
    if not batch and dtype.startswith(("float", "complex")):
        if n == 1 and m == 1:
            return reshaped(pt.dot(left[0], right[:, 0]), (1, 1))
        if n == 1:
            return pt.dot(left[0], right)[None, :]
        if m == 1:
            return pt.dot(left, right[:, 0])[:, None]
        return pt.dot(left, right)
    if k == 1 or not dtype.startswith(("float", "complex")) or min(n, m) == 1:
        terms = left[..., :, :, None] * right[..., None, :, :]
        return pt.sum(terms, axis=-2, dtype=dtype, acc_dtype=dtype)
    return pt.matmul(left, right)
