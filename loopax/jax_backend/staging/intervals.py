"""What is known of an integer that JAX traces: the range it lies in.

A loop of at most 100 steps makes at most 100 rows. What else has that length, ``x[:n_done]`` or the loop
that a gradient runs back through, then has room for as many.

An interval is no `loopax.ir.sizes.dim_expr.DimExpr`: it is one of the values in a frame, of this trace,
ends at the room of a `PaddedArray`, which may be less than the expression of its length allows, and says
nothing of what is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Nonzero,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import Unique
from pytensor.tensor.math import Max, Min, Sum
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from loopax.ir import Call, Scan
from loopax.ir.sizes import access_of, asked_length, length_inputs
from loopax.jax_backend.staging.frame import Frame, RowOf
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import PaddedArray

# What they give are elements of their first input.
_SAME_RANGE = (CheckAndRaise, DimShuffle, Max, Min, ScalarFromTensor, TensorFromScalar)
Range = tuple[int, int]
_LEAST = -(2**63)


def known_range(frame: Frame, v: Variable, rows: bool = True) -> Range | None:
    """The least and the greatest value of integers ``v``, of any shape; None where nothing says so.

    With ``rows`` a row of a sequence lies where the whole sequence does.
    """
    x = frame.read(v)
    if not is_traced(x):
        whole = getattr(x, "dtype", None) is not None and x.dtype.kind in "iub" and np.size(x)
        if not whole:
            return None
        x = np.asarray(x)  # an operation on a concrete array of JAX's would be traced
        return int(x.min()), int(x.max())
    if v in frame.ranges:
        return frame.ranges[v]
    if getattr(v.type, "dtype", None) == "bool":
        return 0, 1
    if v.owner is None:
        origin = frame.origins[frame.plan.inputs.index(v)]
        if rows and isinstance(origin, RowOf):
            origin = origin.sequence
        if isinstance(origin, Variable) and frame.parent is not None:
            return known_range(frame.parent, origin, rows)
        return None
    op: Any = v.owner.op
    inputs = v.owner.inputs
    if isinstance(op, Scan) and op.stops and v is v.owner.outputs[-2]:
        asked = known_range(frame, inputs[0], rows)
        return None if asked is None else (0, max(asked[1], 0))
    if (asked := asked_length(v)) is not None:
        return _length(frame, asked.of, asked.axis)
    if isinstance(op, _SAME_RANGE):
        return known_range(frame, inputs[0], rows)
    if isinstance(op, Sum) and inputs[0].type.dtype == "bool":  # how many a mask selects
        mask = frame.read(inputs[0])
        return 0, int(np.size(mask.data if isinstance(mask, PaddedArray) else mask))
    if isinstance(op, Shape) and inputs[0].type.ndim == 1:
        return _length(frame, inputs[0], 0)
    if isinstance(op, Elemwise) and type(op.scalar_op) in _OPS:
        ranges = [known_range(frame, u, rows) for u in inputs]
        return _OPS[type(op.scalar_op)](*ranges)
    return None


def has_open_length(frame: Frame, node: Apply, values: Sequence[Any]) -> bool:
    """Whether the length of what the node makes is left open, though no input is a `PaddedArray`.

    It asks for one that is traced, and in a known range; or takes the places where a mask is true, which is
    left open only where the caller's values cannot be static.
    """
    if frame.context.open_lengths and (_takes_places(node, values) or _cuts(frame, node)):
        return True
    # A value that could be static is to be, where the caller gives it one: the result is an array then. A
    # loop over rows that make lengths is written out.
    return any(
        (interval := known_range(frame, v, rows=False)) is not None
        and interval[0] != interval[1]
        and (frame.context.open_lengths or _is_never_static(frame, v))
        for v in length_inputs(node.op, node)
        if is_traced(frame.read(v))
    )


def _cuts(frame: Frame, node: Apply) -> bool:
    """Whether it is a slice between traced positions: it has at most the rows that there are.

    Not where these are a known distance apart, so that the length is known. Nor where one of them changes
    from step to step: a short loop of such is written out.
    """
    op: Any = node.op
    if not isinstance(op, Subtensor | IncSubtensor):
        return False

    def traced(k: Any) -> bool:
        return isinstance(k, Variable) and is_traced(frame.read(k))

    slices = [k for k in access_of(node).index if isinstance(k, slice)]
    open_slices = [k for k in slices if traced(k.start) or traced(k.stop)]
    for k in open_slices:
        if traced(k.step):
            return False
        if k.start is not None and k.stop is not None:
            length = frame.dims.value(k.stop) - frame.dims.value(k.start)
            if frame.known(length) is not None:
                return False
    bounds = [v for k in open_slices for v in (k.start, k.stop) if traced(v)]
    return bool(bounds) and not any(frame.blame(v, set()) for v in bounds)


def _takes_places(node: Apply, values: Sequence[Any]) -> bool:
    op: Any = node.op
    if isinstance(op, Nonzero | Unique):
        return is_traced(values[0])
    skipped = next((k for cls, k in _INDEXED.items() if isinstance(op, cls)), None)
    if skipped is None or len(op.idx_list) != 1 or len(values) != skipped + 1:
        return False
    mask = values[-1]
    if not is_traced(mask) or mask.dtype != bool or not mask.ndim:
        return False
    if skipped == 2:  # a value that is the same at every place needs no places
        x, y = values[:2]
        return np.ndim(y) == np.ndim(x) - mask.ndim + 1 and not node.inputs[1].type.broadcastable[0]
    return True


def _is_never_static(frame: Frame, v: Variable) -> bool:
    """Whether ``v`` follows from what nothing can make static.

    That is how many steps a loop takes, and what a call with a pullback of its own returns.
    """
    stack, seen = [v], {v}
    while stack:
        v = stack.pop()
        if isinstance(frame.read(v), PaddedArray):
            return True
        if v.owner is None:
            origin = None if isinstance(v, Constant) else frame.origins[frame.plan.inputs.index(v)]
            if (
                isinstance(origin, Variable)
                and frame.parent
                and _is_never_static(frame.parent, origin)
            ):
                return True
        elif (isinstance(v.owner.op, Scan) and v.owner.op.stops) or _is_opaque(v.owner):
            return True
        else:
            new = [u for u in v.owner.inputs if u not in seen]
            seen.update(new)
            stack += new
    return False


def _is_opaque(node: Apply) -> bool:
    return isinstance(node.op, Call) and node.op.rule is not None


def inputs_of_length(frame: Frame, v: Variable) -> frozenset[int]:
    """The program inputs (by position) that, if static, would make the length of a `PaddedArray` known.

    None of them where it hangs on how many steps a loop takes, or on what changes from step to step.
    """
    if v.owner is None:
        origin = frame.origins[frame.plan.inputs.index(v)]
        if isinstance(origin, Variable) and frame.parent is not None:
            return inputs_of_length(frame.parent, origin)
        return frozenset()
    op, inputs = v.owner.op, v.owner.inputs
    traces = [u for u in inputs if isinstance(frame.read(u), PaddedArray)]
    if traces:
        each = [inputs_of_length(frame, u) for u in traces]
        return frozenset().union(*each) if all(each) else frozenset()
    values = [frame.read(u) for u in inputs]
    given = [inputs[-1]] if _takes_places(v.owner, values) else length_inputs(op, v.owner)
    positions: set[int] = set()
    for u in (u for u in given if is_traced(frame.read(u))):
        if _is_never_static(frame, u) or frame.blame(u, positions):
            return frozenset()
    return frozenset(positions)


# Behind which inputs the index begins.
_INDEXED: dict[type, int] = {AdvancedSubtensor: 1, AdvancedIncSubtensor: 2}


def _length(frame: Frame, v: Variable, axis: int) -> Range | None:
    x = frame.read(v)
    if not isinstance(x, PaddedArray):
        return None
    n = x.data.shape[axis]
    return (0 if axis == x.axis else n, n)


def _all_known(f: Callable[..., Range]) -> Callable[..., Range | None]:
    return lambda *ranges: None if any(r is None for r in ranges) else f(*ranges)


def _add(*ranges: Range) -> Range:
    return sum(r[0] for r in ranges), sum(r[1] for r in ranges)


def _mul(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _remainder(_: Range | None, divisor: Range | None) -> Range | None:
    """Of a positive divisor: from 0 on, whatever is divided."""
    return None if divisor is None or divisor[0] <= 0 else (0, divisor[1] - 1)


def _minimum(*ranges: Range | None) -> Range | None:
    """At most the least of the upper ends that are known."""
    known = [r for r in ranges if r is not None]
    if not known:
        return None
    low = min(r[0] for r in known) if len(known) == len(ranges) else _LEAST
    return low, min(r[1] for r in known)


def _within(x: Range | None, low: Range | None, high: Range | None) -> Range | None:
    if low is None or high is None:
        return None
    return (low[0], high[1]) if x is None else (max(x[0], low[0]), min(x[1], high[1]))


def _switch(condition: Range | None, a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


_OPS: dict[type, Callable[..., Any]] = {
    ps.Add: _all_known(_add),
    ps.Sub: _all_known(lambda a, b: (a[0] - b[1], a[1] - b[0])),
    ps.Neg: _all_known(lambda a: (-a[1], -a[0])),
    ps.Mul: _all_known(_mul),
    type(ps.maximum): _all_known(lambda *r: (max(a[0] for a in r), max(a[1] for a in r))),
    type(ps.minimum): _minimum,
    ps.Mod: _remainder,
    ps.Clip: _within,
    ps.Switch: _switch,
    ps.Cast: lambda a: a,
    ps.Identity: lambda a: a,
}
