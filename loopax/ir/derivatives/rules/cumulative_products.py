"""The pullback of a cumulative product that is right where an element is 0.

    p[i] = x[0] * ... * x[i]
    x̄[i] = p[i - 1] * s[i],   s[i] = p̄[i] + x[i + 1] * s[i + 1]

PyTensor's is ``cumsum((p * p̄)[::-1])[::-1] / x``: nan at such an element (3.0.7, 3.3.8).
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.extra_ops import CumOp

from loopax.ir.derivatives.rules.registry import pullback_of
from loopax.ir.ops.records import BodyArgs, BodyOuts, ScanArgs, ScanOptions
from loopax.ir.ops.scan import Scan


@pullback_of.register(CumOp)
def _cumulative(op: Any, inputs: Any, outputs: Any, cotangents: Any) -> Any:
    if op.mode != "mul" or not inputs[0].type.dtype.startswith("float"):
        return op.pullback(inputs, outputs, cotangents)
    x, g = (pt.moveaxis(v, op.axis, 0) for v in (inputs[0], cotangents[0]))
    one = pt.ones(x.shape[1:], dtype=x.type.dtype)[None]
    before = CumOp(0, "mul")(pt.concatenate([one, x])[:-1])
    after = pt.concatenate([x, one])[1:]
    nothing = pt.zeros_like(one[0])
    row, factor, total = (nothing.type() for _ in range(3))
    new = total.type.filter_variable(row + factor * total)
    body = BodyArgs(pt.lscalar(), [row, factor], [total], [])
    loop = Scan.from_body(body, BodyOuts([new], [new]), ScanOptions(reverse=True))
    bound = loop.bind(ScanArgs(g.shape[0], [g, after], [nothing], []))
    (sums,) = loop.split_outputs(bound).traces
    return [pt.moveaxis(before * sums, 0, op.axis)]
