"""Products under other names: calls of BLAS, and products with a logarithm.

    Dot22(x, y)          ->  x @ y
    Dot22Scalar(x, y, a) ->  a * (x @ y)
    Gemv(y, a, x, v, b)  ->  b * y + a * (x @ v)
    Gemm(z, a, x, y, b)  ->  b * z + a * (x @ y)
    Ger(z, a, u, v)      ->  z + a * outer(u, v)
    xlogy(x, y)          ->  x * switch(x == 0 and log(y) is not finite, 0, log(y))
    xlog1py(x, y)        ->  the same with log1p

PyTensor introduces BLAS calls only when it compiles, so they have no derivatives, and its Numba mode runs
them in Python. If ``b`` is 0, BLAS does not read the operand that it multiplies: that may be uninitialised
memory. The derivative for a ``b`` of 0 is still the derivative of the product.

The pullback of xlogy for x is ``log(y)``, but its inner graph is ``switch(x == 0, 0, x * log(y))``, which
has the derivative 0 where x is 0: a Beta likelihood would have no slope at ``alpha == 1``. Where y is not
positive either, the derivatives are 0 or nan, as for a `switch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blas import Dot22, Dot22Scalar, Gemm, Gemv
from pytensor.tensor.special import XLog1PY, XLogY
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import Ger


@singledispatch
def product_of(op: Op, inputs: Sequence[Variable]) -> Any:
    """The op ``op`` at ``inputs`` as a product; None if it is another op."""
    return None


@product_of.register(Dot22)
def _dot22(op: Dot22, inputs: Sequence[Any]) -> Any:
    x, y = inputs
    return pt.dot(x, y)


@product_of.register(Dot22Scalar)
def _dot22_scalar(op: Dot22Scalar, inputs: Sequence[Any]) -> Any:
    x, y, a = inputs
    return a * pt.dot(x, y)


@product_of.register(Gemv)
@product_of.register(Gemm)
def _added(op: Op, inputs: Sequence[TensorVariable]) -> Any:
    z, a, x, y, b = inputs
    product = a * pt.dot(x, y)
    if isinstance(b, Constant):
        return product if not b.data.any() else b * z + product
    return _zero_times_nothing(b, z).astype(z.type.dtype) + product


@product_of.register(Ger)
def _outer(op: Ger, inputs: Sequence[Any]) -> Any:
    z, a, u, v = inputs
    return z + a * pt.outer(u, v)


@product_of.register(XLogY)
def _xlogy(op: XLogY, inputs: Sequence[Any]) -> Any:
    x, y = inputs
    return _zero_times_nothing(x, pt.log(y))


@product_of.register(XLog1PY)
def _xlog1py(op: XLog1PY, inputs: Sequence[Any]) -> Any:
    x, y = inputs
    return _zero_times_nothing(x, pt.log1p(y))


def _zero_times_nothing(x: Variable, y: Variable) -> Any:
    """Compute ``x * y``, but 0 where x is 0 and y not a number; the derivative by x is y if that is one."""
    undefined = pt.eq(x, 0) & (pt.isinf(y) | pt.isnan(y))
    return x * pt.switch(undefined, 0, y)
