"""Between which two values the integers of an array lie, and where only a run tells a length.

    x % 5 -> 0 to 4        minimum(n, 10) -> at most 10        mask.sum() -> 0 to the size of the mask

A length is of one of three kinds. It is known, where its `DimExpr` is of what a backend knows; it is
bounded, where an interval says how much it can be; or only the run tells it: how many places of a mask are
true (`masks_of`), how many steps a loop takes that stops. JAX makes room for the upper end of an interval
and keeps the count beside it; native code counts first, or fills as much room and cuts it.

Interval arithmetic as in Moore, Kearfott and Cloud, Introduction to Interval Analysis (2009), of integers
that do not wrap around. An interval says nothing of what is equal, as a `DimExpr` does, and is of arrays of
any shape: the one cannot stand for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Nonzero, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import Unique
from pytensor.tensor.math import Max, Min, Sum
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.ir.scan import Scan
from loopax.ir.sizes.dim_expr import asked_length

Interval = tuple[int, int]
OfValue = Callable[[Variable], Interval | None]
OfLength = Callable[[Variable, int], Interval | None]
_LEAST = -(2**63)

# What they give are elements of their first input.
_PASS_ON = (CheckAndRaise, DimShuffle, Max, Min, ScalarFromTensor, TensorFromScalar)


def interval_of(v: Variable, value: OfValue, length: OfLength) -> Interval | None:
    """The least and the greatest of the integers ``v``, by the node that makes it; None if nobody can tell.

    ``value`` says the same of its inputs, ``length`` of how long an array is along an axis.
    """
    node = v.owner
    if node is None:
        return None
    op: Any = node.op
    inputs = node.inputs
    if isinstance(op, Scan) and op.stops and v is node.outputs[-2]:
        asked = value(inputs[0])
        return None if asked is None else (0, max(asked[1], 0))
    if (asked_of := asked_length(v)) is not None:
        return length(asked_of.of, asked_of.axis)
    if isinstance(op, _PASS_ON):
        return value(inputs[0])
    if isinstance(op, Sum) and inputs[0].type.dtype == "bool":  # how many places of a mask are true
        ends = [length(inputs[0], axis) for axis in range(inputs[0].type.ndim)]
        return None if None in ends else (0, int(np.prod([end[1] for end in ends if end])))
    if isinstance(op, Shape) and inputs[0].type.ndim == 1:
        return length(inputs[0], 0)
    if isinstance(op, Elemwise):
        return _of_scalars(op.scalar_op, [value(u) for u in inputs])
    return None


def masks_of(node: Apply) -> list[Variable]:
    """The masks of which ``node`` takes the true places: how many those are only the run tells."""
    op: Any = node.op
    if isinstance(op, Nonzero | Unique):
        return [node.inputs[0]]
    first = next((k for cls, k in _FIRST_INDEX.items() if isinstance(op, cls)), None)
    if first is None:
        return []
    return [
        v for v in node.inputs[first:] if getattr(v.type, "dtype", None) == "bool" and v.type.ndim
    ]


_FIRST_INDEX: dict[type, int] = {AdvancedSubtensor: 1, AdvancedIncSubtensor: 2}


def _of_scalars(op: Any, operands: list[Interval | None]) -> Interval | None:
    rule = _SCALAR_OPS.get(type(op))
    return None if rule is None else rule(*operands)


def _where_all_are_known(f: Callable[..., Interval]) -> Callable[..., Interval | None]:
    return lambda *operands: None if None in operands else f(*operands)


def _add(*operands: Interval) -> Interval:
    return sum(x[0] for x in operands), sum(x[1] for x in operands)


def _mul(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _remainder(_: Interval | None, divisor: Interval | None) -> Interval | None:
    """Of a positive divisor: from 0 on, whatever is divided."""
    return None if divisor is None or divisor[0] <= 0 else (0, divisor[1] - 1)


def _minimum(*operands: Interval | None) -> Interval | None:
    """At most the least of the upper ends that are known."""
    known = [x for x in operands if x is not None]
    if not known:
        return None
    least = min(x[0] for x in known) if len(known) == len(operands) else _LEAST
    return least, min(x[1] for x in known)


def _clip(x: Interval | None, low: Interval | None, high: Interval | None) -> Interval | None:
    if low is None or high is None:
        return None
    return (low[0], high[1]) if x is None else (max(x[0], low[0]), min(x[1], high[1]))


def _switch(_: Interval | None, a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


_SCALAR_OPS: dict[type, Callable[..., Interval | None]] = {
    ps.Add: _where_all_are_known(_add),
    ps.Sub: _where_all_are_known(lambda a, b: (a[0] - b[1], a[1] - b[0])),
    ps.Neg: _where_all_are_known(lambda a: (-a[1], -a[0])),
    ps.Mul: _where_all_are_known(_mul),
    ps.ScalarMaximum: _where_all_are_known(lambda *x: (max(a[0] for a in x), max(a[1] for a in x))),
    ps.ScalarMinimum: _minimum,
    ps.Mod: _remainder,
    ps.Clip: _clip,
    ps.Switch: _switch,
    ps.Cast: lambda a: a,
    ps.Identity: lambda a: a,
}
