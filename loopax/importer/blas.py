"""The calls of BLAS in a compiled program, as the products that they are.

    Dot22(x, y)          ->  x @ y
    Dot22Scalar(x, y, a) ->  a * (x @ y)
    Gemv(y, a, x, v, b)  ->  b * y + a * (x @ v)
    Gemm(z, a, x, y, b)  ->  b * z + a * (x @ y)
    Ger(z, a, u, v)      ->  z + a * outer(u, v)

PyTensor puts them in where it compiles, so that they have no derivatives, and Python alone runs them in its
Numba mode. With a ``b`` of 0 BLAS does not read what that is multiplied with: it may be memory that nobody
wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor.blas import Dot22, Dot22Scalar, Gemm, Gemv

from loopax.base.upstream.pytensor import Ger


@singledispatch
def product_of(op: Any, inputs: Sequence[Any]) -> Any:
    """What a call of BLAS computes; None for any other op."""
    return None


@product_of.register(Dot22)
def _dot22(op: Any, inputs: Sequence[Any]) -> Any:
    x, y = inputs
    return pt.dot(x, y)


@product_of.register(Dot22Scalar)
def _dot22_scalar(op: Any, inputs: Sequence[Any]) -> Any:
    x, y, a = inputs
    return a * pt.dot(x, y)


@product_of.register(Gemv)
@product_of.register(Gemm)
def _added(op: Any, inputs: Sequence[Any]) -> Any:
    z, a, x, y, b = inputs
    product = a * pt.dot(x, y)
    if isinstance(b, Constant):
        return product if not b.data.any() else b * z + product
    return pt.switch(pt.eq(b, 0), 0, b * z).astype(z.type.dtype) + product


@product_of.register(Ger)
def _outer(op: Any, inputs: Sequence[Any]) -> Any:
    z, a, u, v = inputs
    return z + a * pt.outer(u, v)
