"""Intervals of integers that JAX traces.

A loop of at most 100 steps makes at most 100 rows. Other arrays of that length, such as ``x[:n_done]``, or
in the backward loop of a gradient, are then padded to as many.

The rules for ops are in `loopax.ir.sizes.intervals`; this file adds facts of a trace: the values of its
frame, and the size of a `PaddedArray`, which may be less than the expression of its length allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor, Subtensor

from loopax.base.upstream.pytensor import indices_from_subtensor
from loopax.facts import facts_of
from loopax.ir import Call, Scan
from loopax.ir.ops.calling_convention import UNBOUNDED
from loopax.ir.sizes import Interval, access_of, interval_of, interval_of_values, masks_of
from loopax.jax_backend.staging.frame import Frame, IndexOf, RowOf
from loopax.jax_backend.staging.registry import has_trace_rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import PaddedArray


def known_interval(
    frame: Frame, v: Variable, rows: bool = True, indices: bool | None = None
) -> Interval | None:
    """The least and the greatest value of integers ``v``, of any shape; None if unknown.

    With ``rows``, a row of a sequence is in the interval of the whole sequence; with ``indices``, which
    defaults to ``rows``, the index of a step is below the trip count.
    """
    return _Query(rows, rows if indices is None else indices).interval(frame, v)


@dataclass
class _Query:
    """The intervals behind one interval, each computed once: an index may read an earlier one twice."""

    rows: bool
    indices: bool
    computed: dict[tuple[int, Variable], Interval | None] = field(default_factory=dict)

    def interval(self, frame: Frame, v: Variable) -> Interval | None:
        key = id(frame), v
        if key not in self.computed:
            self.computed[key] = self._interval(frame, v)
        return self.computed[key]

    def _interval(self, frame: Frame, v: Variable) -> Interval | None:
        x = frame.read(v)
        if not is_traced(x):
            return interval_of_values(x)
        if v in frame.intervals:
            return frame.intervals[v]
        if getattr(v.type, "dtype", None) == "bool":
            return 0, 1
        if v in frame.plan.positions:
            return self._interval_of_input(frame, v)
        return interval_of(v, partial(self.interval, frame), partial(_length_interval, frame))

    def _interval_of_input(self, frame: Frame, v: Variable) -> Interval | None:
        origin = frame.origins[frame.plan.positions[v]]
        if self.rows and isinstance(origin, RowOf):
            origin = origin.sequence
        if frame.parent is None:
            return None
        if self.indices and isinstance(origin, IndexOf):
            steps = self.interval(frame.parent, origin.n_steps)
            if steps is None or steps[1] >= UNBOUNDED:
                return None
            return 0, max(steps[1] - 1, 0)
        return self.interval(frame.parent, origin) if isinstance(origin, Variable) else None


def has_open_length(frame: Frame, node: Apply, values: Sequence[Any]) -> bool:
    """Whether the length of the node's result is left open, though no input is a `PaddedArray`.

    This is so if it asks for a traced length in a known interval; or if it selects by a mask, whose number
    of true elements is left open only if the caller's values cannot be static.
    """
    if frame.context.open_lengths and (_takes_places(node, values) or _cuts(frame, node)):
        return True
    # A value that can be static should be static if the caller gives it one: the result is then an array. A
    # loop over rows that determine lengths is unrolled.
    return any(
        (interval := known_interval(frame, v, rows=False)) is not None
        and interval[0] != interval[1]
        and (frame.context.open_lengths or _is_never_static(frame, v))
        for v in facts_of(node.op).lengths(node)
        if is_traced(frame.read(v)) and _may_be_open(node.op)
    )


def _may_be_open(op: Op) -> bool:
    """Whether a length passed to ``op`` may be traced; for reshapes JAX must know all lengths."""
    return has_trace_rule(op) and not isinstance(op, Reshape | SplitDims)


def _cuts(frame: Frame, node: Apply) -> bool:
    """Whether ``node`` slices between traced positions: its result has at most all rows.

    False if the positions are a known distance apart, so that the length is known, or if one of them
    changes between steps: such a loop is unrolled if it is short.
    """
    op: Any = node.op
    if not isinstance(op, Subtensor | IncSubtensor):
        return False

    def traced(k: Variable | None) -> bool:
        return isinstance(k, Variable) and is_traced(frame.read(k))

    slices = [k for k in access_of(node).index if isinstance(k, slice)]
    open_slices = [k for k in slices if traced(k.start) or traced(k.stop)]
    for k in open_slices:
        if traced(k.step):
            return False
        if None not in (k.start, k.stop) and frame.distance(k.start, k.stop) is not None:
            return False
    bounds = [v for k in open_slices for v in (k.start, k.stop) if traced(v)]
    return bool(bounds) and not any(frame.blame(v, set()) for v in bounds)


def _takes_places(node: Apply, values: Sequence[Any]) -> bool:
    """Whether ``node`` selects rows by a traced mask, and needs their positions."""
    masks = masks_of(node)
    if not any(is_traced(x) for x, v in zip(values, node.inputs, strict=True) if v in masks):
        return False
    op: Any = node.op
    if not isinstance(op, AdvancedIncSubtensor):
        return True
    x, y, *index = values  # a value that does not vary along a single mask needs no positions
    entries = list(indices_from_subtensor(index, op.idx_list))
    arrays = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    if len(arrays) != 1:
        return True
    (axis,) = arrays
    place = np.ndim(y) - (np.ndim(x) - axis - np.ndim(entries[axis])) - 1
    return place >= 0 and not node.inputs[1].type.broadcastable[place]


def _is_never_static(frame: Frame, v: Variable) -> bool:
    """Whether ``v`` depends on a value that can never be static.

    Such values are the numbers of steps that loops take, and the results of calls with a pullback of their
    own.
    """
    stack, seen = [v], {v}
    while stack:
        v = stack.pop()
        if isinstance(frame.read(v), PaddedArray):
            return True
        if isinstance(v, Constant):
            continue
        if v in frame.plan.positions:
            origin = frame.origins[frame.plan.positions[v]]
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
    """The program inputs (by position) that would make the length of a `PaddedArray` known, if static.

    The set is empty if it depends on the number of steps that a loop takes, or on values that change
    between steps.
    """
    if v in frame.plan.positions:
        origin = frame.origins[frame.plan.positions[v]]
        if isinstance(origin, Variable) and frame.parent is not None:
            return inputs_of_length(frame.parent, origin)
        return frozenset()
    op, inputs = v.owner.op, v.owner.inputs
    traces = [u for u in inputs if isinstance(frame.read(u), PaddedArray)]
    if traces:
        each = [inputs_of_length(frame, u) for u in traces]
        return frozenset().union(*each) if all(each) else frozenset()
    values = [frame.read(u) for u in inputs]
    sources = masks_of(v.owner) if _takes_places(v.owner, values) else facts_of(op).lengths(v.owner)
    positions: set[int] = set()
    for u in (u for u in sources if is_traced(frame.read(u))):
        if _is_never_static(frame, u) or frame.blame(u, positions):
            return frozenset()
    return frozenset(positions)


def _length_interval(frame: Frame, v: Variable, axis: int) -> Interval | None:
    x = frame.read(v)
    n = np.shape(x.data if isinstance(x, PaddedArray) else x)[axis]
    if not isinstance(n, int):  # it is a symbol
        return None
    return (0 if isinstance(x, PaddedArray) and axis == x.axis else n, n)
