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
from pytensor.tensor.basic import Alloc, MakeVector, Nonzero, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import Unique
from pytensor.tensor.math import Max, Min, Prod, Sum
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import integer_dtypes

from loopax.ir.ops.scan import Scan
from loopax.ir.sizes.dim_expr import asked_length
from loopax.ir.sizes.rules import Interval, interval_arithmetic, interval_rule, mask_rule

OfValue = Callable[[Variable], Interval | None]
OfLength = Callable[[Variable, int], Interval | None]
_LEAST = -(2**63)  # of what has no lower end


def interval_of(v: Variable, value: OfValue, length: OfLength) -> Interval | None:
    """The least and the greatest of the integers ``v``, by the node that makes it; None if nobody can tell.

    ``value`` says the same of its inputs, ``length`` of how long an array is along an axis.
    """
    if v.owner is None:
        return None
    if (asked := asked_length(v)) is not None:
        return length(asked.of, asked.axis)
    return interval_rule(v.owner.op, v.owner, v, value, length)


def masks_of(node: Apply) -> list[Variable]:
    """The masks of which ``node`` takes the true places: how many those are only the run tells."""
    return list(mask_rule(node.op, node))


# -- arrays and loops --------------------------------------------------------------------------------


@interval_rule.register(Scan)
def _steps_taken(
    op: Scan, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """How many steps a loop took that stops: at most what was asked for."""
    asked = value(node.inputs[0]) if op.stops and v is node.outputs[-2] else None
    return None if asked is None else (0, max(asked[1], 0))


@interval_rule.register(
    Alloc | CheckAndRaise | DimShuffle | Max | Min | ScalarFromTensor | TensorFromScalar
)
def _elements(
    op: Any, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """What it gives are elements of its first input."""
    return value(node.inputs[0])


@interval_rule.register(MakeVector)
def _hull(
    op: MakeVector, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    entries = list(map(value, node.inputs))
    if not entries or None in entries:
        return None
    return min(e[0] for e in entries if e), max(e[1] for e in entries if e)


@interval_rule.register(Sum)
def _places(op: Sum, node: Apply, v: Variable, value: OfValue, length: OfLength) -> Interval | None:
    """How many places of a mask are true."""
    (mask,) = node.inputs
    if mask.type.dtype != "bool":
        return None
    ends = [length(mask, axis) for axis in range(mask.type.ndim)]
    return None if None in ends else (0, int(np.prod([end[1] for end in ends if end])))


@interval_rule.register(Prod)
def _number_of_elements(
    op: Prod, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The product of some numbers, or of the lengths of an array."""
    (x,) = node.inputs
    if x.type.ndim != 1 or x.owner is None:
        return None
    if isinstance(x.owner.op, MakeVector):
        factors = [value(u) for u in x.owner.inputs]
    elif isinstance(x.owner.op, Shape):
        (array,) = x.owner.inputs
        factors = [length(array, axis) for axis in range(array.type.ndim)]
    else:
        return None
    known = [f for f in factors if f is not None]
    return _mul(*known) if len(known) == len(factors) else None


@interval_rule.register(Shape)
def _length_of_vector(
    op: Shape, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    (x,) = node.inputs
    return length(x, 0) if x.type.ndim == 1 else None


@mask_rule.register(Nonzero | Unique)
def _mask_itself(op: Any, node: Apply) -> list[Variable]:
    return [node.inputs[0]]


@mask_rule.register(AdvancedSubtensor)
def _masks_read_at(op: Any, node: Apply) -> list[Variable]:
    return _masks(node.inputs[1:])


@mask_rule.register(AdvancedIncSubtensor)
def _masks_written_at(op: Any, node: Apply) -> list[Variable]:
    return _masks(node.inputs[2:])


def _masks(index: list[Variable]) -> list[Variable]:
    return [v for v in index if getattr(v.type, "dtype", None) == "bool" and v.type.ndim]


# -- arithmetic --------------------------------------------------------------------------------------


@interval_rule.register(Elemwise)
def _arithmetic(
    op: Elemwise, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """None where the result may wrap around; that a number of which nothing is known does is left aside."""
    interval = interval_arithmetic(op.scalar_op, *map(value, node.inputs))
    if interval is None or v.type.dtype not in integer_dtypes:
        return interval
    limits = np.iinfo(v.type.dtype)
    is_open = interval[0] < _LEAST // 2
    return (
        interval if (is_open or limits.min <= interval[0]) and interval[1] <= limits.max else None
    )


def _where_all_are_known(f: Callable[..., Interval]) -> Callable[..., Interval | None]:
    return lambda op, *operands: None if None in operands else f(*operands)


def _mul(*factors: Interval) -> Interval:
    low, high = 1, 1
    for factor in factors:
        ends = [x * y for x in (low, high) for y in factor]
        low, high = min(ends), max(ends)
    return low, high


@interval_arithmetic.register(ps.Mod)
def _remainder(op: Any, _: Interval | None, divisor: Interval | None) -> Interval | None:
    """The interval of a remainder: from 0 to below the divisor if that is positive, whatever is divided."""
    return None if divisor is None or divisor[0] <= 0 else (0, divisor[1] - 1)


@interval_arithmetic.register(ps.ScalarMinimum)
def _minimum(op: Any, *operands: Interval | None) -> Interval | None:
    """At most the least of the upper ends that are known."""
    known = [x for x in operands if x is not None]
    if not known:
        return None
    least = min(x[0] for x in known) if len(known) == len(operands) else _LEAST
    return least, min(x[1] for x in known)


@interval_arithmetic.register(ps.Clip)
def _clip(
    op: Any, x: Interval | None, low: Interval | None, high: Interval | None
) -> Interval | None:
    if low is None or high is None:
        return None
    return (low[0], high[1]) if x is None else (max(x[0], low[0]), min(x[1], high[1]))


@interval_arithmetic.register(ps.Switch)
def _switch(op: Any, _: Interval | None, a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


_WHERE_ALL_ARE_KNOWN: dict[type, Callable[..., Interval]] = {
    ps.Add: lambda *x: (sum(a[0] for a in x), sum(a[1] for a in x)),
    ps.Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ps.Neg: lambda a: (-a[1], -a[0]),
    ps.Mul: _mul,
    ps.ScalarMaximum: lambda *x: (max(a[0] for a in x), max(a[1] for a in x)),
}
for _op, _rule in _WHERE_ALL_ARE_KNOWN.items():
    interval_arithmetic.register(_op)(_where_all_are_known(_rule))
interval_arithmetic.register(ps.Cast | ps.Identity)(lambda op, a: a)
