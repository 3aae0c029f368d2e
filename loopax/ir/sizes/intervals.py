"""Intervals of the integers in an array, and lengths that only the run determines.

    x % 5 -> 0 to 4        minimum(n, 10) -> at most 10        mask.sum() -> 0 to the size of the mask

There are three kinds of lengths: known ones, whose `DimExpr` has only values known to a backend;
bounded ones, with an interval; and lengths that only the run determines, the number of true elements
of a mask (`masks_of`) or of steps of a loop that stops. JAX allocates the upper end of an interval
and keeps the count beside it; native code counts first, or fills such a buffer and cuts it.

Interval arithmetic as in Moore, Kearfott and Cloud, Introduction to Interval Analysis (2009), for
integers that do not wrap around. An interval shows no equalities, unlike a `DimExpr`, but covers
arrays of any shape: neither replaces the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, MakeVector, Nonzero, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import SearchsortedOp, Unique
from pytensor.tensor.linalg.decomposition.lu import PivotToPermutations
from pytensor.tensor.math import Argmax, Max, Min, Prod, Sum
from pytensor.tensor.shape import Reshape, Shape, SpecifyShape
from pytensor.tensor.sort import ArgSortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.type import integer_dtypes

from loopax.base.upstream.pytensor import AdvancedSubtensor1, axis_of
from loopax.facts.accesses import access_of
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.sizes.dim_expr import asked_length
from loopax.ir.sizes.rules import (
    Interval,
    OfLength,
    OfValue,
    interval_arithmetic,
    interval_rule,
    mask_rule,
)

_LEAST = -(2**63)  # the lower end of an interval without one


def interval_of(v: Variable, value: OfValue, length: OfLength) -> Interval | None:
    """The least and the greatest of the integers ``v``, from its node; None where it is not known.

    ``value`` returns the intervals of its inputs, ``length`` the interval of an array's length along
    an axis.
    """
    if v.owner is None:
        return None
    if (length_read := asked_length(v)) is not None:
        return length(length_read.of, length_read.axis)
    return interval_rule(v.owner.op, v.owner, v, value, length)


def interval_of_values(x: Any) -> Interval | None:
    """The least and the greatest element of an array of integers or flags; None for any other value."""
    if getattr(x, "dtype", None) is None or x.dtype.kind not in "iub" or not np.size(x):
        return None
    numbers = np.asarray(x)  # an operation on a concrete array of JAX's would be traced
    return int(numbers.min()), int(numbers.max())


def hull(*intervals: Interval | None) -> Interval | None:
    """The least interval that contains all ``intervals``; None if one is not known, or there is none."""
    known = [x for x in intervals if x is not None]
    if not known or len(known) < len(intervals):
        return None
    return min(x[0] for x in known), max(x[1] for x in known)


def masks_of(node: Apply) -> list[Variable]:
    """The masks whose true elements ``node`` selects; their number is known only at run time."""
    return list(mask_rule(node.op, node))


# -- arrays and loops --------------------------------------------------------------------------------


@interval_rule.register(ScanGrammar)
def _steps_taken(
    op: ScanGrammar, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The number of steps taken by a loop that stops: at most the requested number."""
    n_steps = value(node.inputs[0]) if op.stops and v is node.outputs[-2] else None
    return None if n_steps is None else (0, max(n_steps[1], 0))


@interval_rule.register(Alloc | CheckAndRaise | DimShuffle | Max | Min)
@interval_rule.register(Reshape | SpecifyShape | ScalarFromTensor | TensorFromScalar)
def _elements(
    op: Op, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The interval of the first input, for an op whose output has only elements of it."""
    return value(node.inputs[0])


@interval_rule.register(MakeVector)
def _entries(
    op: MakeVector, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    return hull(*map(value, node.inputs))


@interval_rule.register(Subtensor | AdvancedSubtensor | AdvancedSubtensor1)
def _entries_read(
    op: Subtensor | AdvancedSubtensor | AdvancedSubtensor1,
    node: Apply,
    v: Variable,
    value: OfValue,
    length: OfLength,
) -> Interval | None:
    """The interval of the array, if all indices are in range: elsewhere JAX returns other values."""
    x, *places = node.inputs
    index = access_of(node).index if hasattr(op, "idx_list") else places
    for axis, k in enumerate(index):
        if isinstance(k, slice):
            continue
        # Neither a mask nor a new axis.
        is_number = getattr(k.type, "dtype", None) in integer_dtypes
        if not is_number or not _is_within(value(k), length(x, axis)):
            return None
    return value(x)


def _is_within(places: Interval | None, length: Interval | None) -> bool:
    return bool(places and length and -length[0] <= places[0] and places[1] < length[0])


_COUNTS_PLACES = ArgSortOp | Argmax | PivotToPermutations


@interval_rule.register(_COUNTS_PLACES)
def _places(op: Op, node: Apply, v: Variable, value: OfValue, length: OfLength) -> Interval | None:
    """The interval of positions along an axis, or in a flattened group of axes."""
    axes = None
    if isinstance(op, ArgSortOp) and (axis := axis_of(node)) is not None:
        axes = (axis,)
    elif isinstance(op, Argmax):
        axes = op.axis
    n = _most_entries(node.inputs[0], length, axes)
    return None if n is None else (0, max(n - 1, 0))


@interval_rule.register(SearchsortedOp)
def _places_between(
    op: SearchsortedOp, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    n = length(node.inputs[0], 0)
    return None if n is None else (0, n[1])


@interval_rule.register(Blockwise)
def _of_each(
    op: Blockwise, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The interval for a batch of an op that counts positions, from the whole input."""
    counts_places = isinstance(op.core_op, _COUNTS_PLACES)
    return _places(op, node, v, value, length) if counts_places else None


def _most_entries(x: Variable, length: OfLength, axes: Sequence[int] | None = None) -> int | None:
    """The greatest number of entries that ``x`` can have, along ``axes`` or in all."""
    ends = [length(x, axis) for axis in (range(x.type.ndim) if axes is None else axes)]
    return None if None in ends else prod(end[1] for end in ends if end)


@interval_rule.register(Sum)
def _sum(op: Sum, node: Apply, v: Variable, value: OfValue, length: OfLength) -> Interval | None:
    """The interval of the number of true elements of a mask, or of a sum that cannot wrap around."""
    (x,) = node.inputs
    elements = (0, 1) if x.type.dtype == "bool" else value(x)
    n = _most_entries(x, length)
    dtypes = v.type.dtype, op.acc_dtype or v.type.dtype
    if elements is None or n is None or any(dtype not in integer_dtypes for dtype in dtypes):
        return None
    interval = min(n * elements[0], 0), max(n * elements[1], 0)
    return interval if all(_fits(interval, dtype) for dtype in dtypes) else None


@interval_rule.register(Prod)
def _number_of_elements(
    op: Prod, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The interval of a product of scalars, or of the lengths of an array."""
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
    intervals = [f for f in factors if f is not None]
    return _mul(*intervals) if len(intervals) == len(factors) else None


@interval_rule.register(Shape)
def _length_of_vector(
    op: Shape, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    (x,) = node.inputs
    return length(x, 0) if x.type.ndim == 1 else None


@mask_rule.register(Nonzero | Unique)
def _mask_itself(op: Op, node: Apply) -> list[Variable]:
    return [node.inputs[0]]


@mask_rule.register(AdvancedSubtensor)
def _masks_read_at(op: AdvancedSubtensor, node: Apply) -> list[Variable]:
    return _masks(node.inputs[1:])


@mask_rule.register(AdvancedIncSubtensor)
def _masks_written_at(op: AdvancedIncSubtensor, node: Apply) -> list[Variable]:
    return _masks(node.inputs[2:])


def _masks(index: list[Variable]) -> list[Variable]:
    return [v for v in index if getattr(v.type, "dtype", None) == "bool" and v.type.ndim]


# -- arithmetic --------------------------------------------------------------------------------------


@interval_rule.register(Elemwise)
def _arithmetic(
    op: Elemwise, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The interval of integer arithmetic; None where a number in a known interval may wrap around."""
    operands = list(map(value, node.inputs))
    dtype = v.type.dtype
    if isinstance(op.scalar_op, ps.Invert) and dtype != "bool":
        return _inverted(operands[0], dtype)
    if dtype not in (*integer_dtypes, "bool"):
        return None  # a float in between has no interval here: 5.5 % 6.0 is above 5
    interval = interval_arithmetic(op.scalar_op, *operands)
    if interval is None:
        return None
    if dtype == "bool":  # an add is `or`, and a cast maps all but 0 to True
        has_zero = interval[0] <= 0 <= interval[1]
        return int(not has_zero), int(interval != (0, 0))
    if isinstance(op.scalar_op, ps.ScalarMinimum):
        interval = max(interval[0], int(np.iinfo(dtype).min)), interval[1]
    # An open interval in the dtype of lengths: no length comes within 2**31 of the least integer.
    is_open = dtype == "int64" and _LEAST - 2**31 <= interval[0] < _LEAST // 2
    ends = (0, interval[1]) if is_open else interval
    return interval if _fits(ends, dtype) else None


def _inverted(x: Interval | None, dtype: str) -> Interval | None:
    """The interval of ``~x``, which is ``-1 - x`` in a signed dtype."""
    if x is None:
        return None
    most = -1 if np.iinfo(dtype).min else int(np.iinfo(dtype).max)
    return most - x[1], most - x[0]


def _fits(interval: Interval, dtype: str) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= interval[0] and interval[1] <= limits.max)


def _where_all_are_known(f: Callable[..., Interval]) -> Callable[..., Interval | None]:
    return lambda op, *operands: None if None in operands else f(*operands)


def _mul(*factors: Interval) -> Interval:
    low, high = 1, 1
    for factor in factors:
        ends = [x * y for x in (low, high) for y in factor]
        low, high = min(ends), max(ends)
    return low, high


@interval_arithmetic.register(ps.Mod)
def _remainder(op: Op, _: Interval | None, divisor: Interval | None) -> Interval | None:
    """The interval of a remainder: from 0 to below the divisor, if that is positive."""
    return None if divisor is None or divisor[0] <= 0 else (0, divisor[1] - 1)


@interval_arithmetic.register(ps.ScalarMinimum)
def _minimum(op: Op, *operands: Interval | None) -> Interval | None:
    """The interval of a minimum: at most the least of the known upper ends."""
    intervals = [x for x in operands if x is not None]
    if not intervals:
        return None
    least = min(x[0] for x in intervals) if len(intervals) == len(operands) else _LEAST
    return least, min(x[1] for x in intervals)


@interval_arithmetic.register(ps.Clip)
def _clip(
    op: Op, x: Interval | None, low: Interval | None, high: Interval | None
) -> Interval | None:
    """The interval of a clip, which has a bound if the lower bound is above the upper one."""
    if low is None or high is None:
        return None
    if x is None or low[1] > high[0]:
        return min(low[0], high[0]), max(low[1], high[1])
    return min(max(x[0], low[0]), high[0]), min(max(x[1], low[1]), high[1])


@interval_arithmetic.register(ps.Switch)
def _switch(
    op: Op, condition: Interval | None, a: Interval | None, b: Interval | None
) -> Interval | None:
    if condition is not None and (condition[0] > 0 or condition[1] < 0):
        return a
    if condition == (0, 0):
        return b
    return hull(a, b)


def _test(is_true: bool, is_false: bool) -> Interval:
    """The interval of a test, as a number: 1 where it holds."""
    return int(is_true), int(not is_false)


@interval_arithmetic.register(ps.AND | ps.OR | ps.XOR | ps.Invert)
def _logical(op: Op, *operands: Interval | None) -> Interval | None:
    """The interval of a logical operation on tests; bitwise operations on numbers are not analysed."""
    if any(x is None or x[0] < 0 or x[1] > 1 for x in operands):
        return None
    lows, highs = zip(*[x for x in operands if x is not None], strict=True)
    if isinstance(op, ps.AND):
        return min(lows), min(highs)
    if isinstance(op, ps.OR):
        return max(lows), max(highs)
    if lows != highs:
        return 0, 1
    value = 1 - lows[0] if isinstance(op, ps.Invert) else sum(lows) % 2
    return value, value


_WHERE_ALL_ARE_KNOWN: dict[type, Callable[..., Interval]] = {
    ps.Add: lambda *x: (sum(a[0] for a in x), sum(a[1] for a in x)),
    ps.Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ps.Neg: lambda a: (-a[1], -a[0]),
    ps.Mul: _mul,
    ps.ScalarMaximum: lambda *x: (max(a[0] for a in x), max(a[1] for a in x)),
    ps.LT: lambda a, b: _test(a[1] < b[0], a[0] >= b[1]),
    ps.LE: lambda a, b: _test(a[1] <= b[0], a[0] > b[1]),
    ps.GT: lambda a, b: _test(a[0] > b[1], a[1] <= b[0]),
    ps.GE: lambda a, b: _test(a[0] >= b[1], a[1] < b[0]),
    ps.EQ: lambda a, b: _test(a == b and a[0] == a[1], a[1] < b[0] or b[1] < a[0]),
    ps.NEQ: lambda a, b: _test(a[1] < b[0] or b[1] < a[0], a == b and a[0] == a[1]),
}
for _op, _rule in _WHERE_ALL_ARE_KNOWN.items():
    interval_arithmetic.register(_op)(_where_all_are_known(_rule))
interval_arithmetic.register(ps.Cast | ps.Identity)(lambda op, a: a)
