"""Cumulative products whose derivative is right where an element is 0.

    p[i] = x[0] * ... * x[i]
    x̄[i] = p[i - 1] * s[i],   s[i] = p̄[i] + x[i + 1] * s[i + 1]

PyTensor's pullback is ``cumsum((p * p̄)[::-1])[::-1] / x``: nan at such an element.
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import CumOp

from loopax.frontend.loops.scan import scan


class CumulativeProduct(CumOp):
    """PyTensor's ``CumOp(axis, mode="mul")`` with a pullback that does not divide.

    Parameters
    ----------
    axis
        Along which it goes.
    mode
        ``"mul"``.

    Examples
    --------
    >>> import pytensor
    >>> x = pt.dvector("x")
    >>> slope = pytensor.grad(CumulativeProduct(0)(x).sum(), x)
    >>> slope.eval({x: [2.0, 0.0, 3.0]})
    array([1., 8., 0.])
    """

    def __init__(self, axis: int, mode: str = "mul") -> None:
        super().__init__(axis, mode)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        x, g = (pt.moveaxis(v, self.axis, 0) for v in (inputs[0], cotangents[0]))
        one = pt.ones(x.shape[1:], dtype=x.type.dtype)[None]
        before = CumulativeProduct(0)(pt.concatenate([one, x])[:-1])
        after = pt.concatenate([x, one])[1:]
        _, sums = scan(
            lambda s, row: (row[0] + row[1] * s,) * 2,
            pt.zeros_like(one[0]),
            (g, after),
            reverse=True,
        )
        return [pt.moveaxis(before * sums, 0, self.axis)]


def exact_product(node: Apply) -> CumulativeProduct | None:
    """The op that is to take the place of ``node``'s, where that is a product of what has a derivative."""
    op: Any = node.op
    if type(op) is not CumOp or op.mode != "mul":
        return None
    is_float = node.outputs[0].type.dtype in ("float16", "float32", "float64")
    return CumulativeProduct(op.axis) if is_float else None
