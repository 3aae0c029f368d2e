"""Pullbacks of products, correct also where an element is 0.

    p[i] = x[0] * ... * x[i]:    x̄[i] = p[i - 1] * s[i],   s[i] = p̄[i] + x[i + 1] * s[i + 1]
    p = x[0] * ... * x[n - 1]:   x̄[i] = p̄ * (x[0] * ... * x[i - 1]) * (x[i + 1] * ... * x[n - 1])

PyTensor's rules divide by an element: the cumulative product's, ``cumsum((p * p̄)[::-1])[::-1] / x``,
is nan where one is 0; the product's counts the zeros, and has no derivative; both lack the conjugates of
complex numbers (3.0.7, 3.3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import mul
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Prod
from pytensor.tensor.variable import TensorVariable

from loopax.ir.derivatives.rules.registry import own_pullback, pullback_of
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs, ScanOptions
from loopax.ir.ops.scan import Scan

_NUMBERS = "float", "complex"


@pullback_of.register(CumOp)
def _cumulative(
    op: CumOp,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[Variable],
    cotangents: Sequence[TensorVariable],
) -> Any:
    if op.mode != "mul" or not inputs[0].type.dtype.startswith(_NUMBERS):
        return own_pullback(op, inputs, outputs, cotangents)
    x, g = (pt.moveaxis(v, op.axis, 0) for v in (_factors(inputs[0]), cotangents[0]))
    one = pt.ones(x.shape[1:], dtype=x.type.dtype)[None]
    next_rows = pt.concatenate([x, one])[1:]
    nothing = pt.zeros_like(one[0])
    row, factor, total = (nothing.type() for _ in range(3))
    next_total = total.type.filter_variable(row + factor * total)
    body = BodyArgs(pt.lscalar(), [row, factor], [total], [])
    loop = Scan.from_body(body, BodyOuts([next_total], [next_total]), ScanOptions(reverse=True))
    bound = loop.bind(ScanArgs(g.shape[0], [g, next_rows], [nothing], []))
    (sums,) = loop.split_outputs(bound).traces
    return [pt.moveaxis(_product_of_previous(x) * sums, 0, op.axis)]


@pullback_of.register(Prod)
def _product(
    op: Any,
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    cotangents: Sequence[Variable],
) -> Any:
    (x,), (g,) = inputs, cotangents
    dtypes = x.type.dtype, outputs[0].type.dtype, op.acc_dtype
    if op.no_zeros_in_input or op.axis == () or not all(d.startswith(_NUMBERS) for d in dtypes):
        return own_pullback(op, inputs, outputs, cotangents)
    axes = list(range(x.type.ndim)) if op.axis is None else sorted(op.axis)
    other_axes = [k for k in range(x.type.ndim) if k not in axes]
    order = [*axes, *other_axes]
    # Partial products may overflow the dtype of x.
    transposed = _factors(x).astype(op.acc_dtype).transpose(order)
    # Not -1, which is undetermined if another axis is empty.
    n_factors = reduce(mul, [x.shape[k] for k in axes])
    lengths = (n_factors, *(x.shape[k] for k in other_axes))
    factors = transposed.reshape(lengths, ndim=1 + len(other_axes))
    other_factors = _product_of_previous(factors) * _product_of_previous(factors[::-1])[::-1]
    cotangent = (g * other_factors).reshape(transposed.shape, ndim=x.type.ndim)
    return [cotangent.transpose([order.index(k) for k in range(x.type.ndim)])]


def _factors(x: Variable) -> Any:
    """The factors of the derivatives: the conjugates of complex numbers, in PyTensor's convention."""
    return pt.conj(x) if x.type.dtype.startswith("complex") else x


def _product_of_previous(x: TensorVariable) -> Any:
    """The product of all rows before each row of ``x``, 1 for the first."""
    one = pt.ones(x.shape[1:], dtype=x.type.dtype)[None]
    return CumOp(0, "mul")(pt.concatenate([one, x])[:-1])
