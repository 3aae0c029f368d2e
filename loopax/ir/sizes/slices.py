"""Rows of a slice as positions; windows of an array; conversion back to Python's slices.

    x[-3:]            rows n - 3 up to n              of n rows
    x[::-1][a:b]      rows n - 1 - a down to n - b
    x[1:][::-1]       n - 1 rows from n - 1 on, backwards

A `Slice` describes positions, which may lie before the first row or after the last one, where there are no
rows. So it is affine in the length of the array, and reversals and shifts are arithmetic. A `Window`
describes rows that provably exist: a count of rows, from an existing row on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes.analysis import Dims
from loopax.ir.sizes.dim_expr import Bound, DimExpr

_FIRST, _BEFORE = DimExpr(), DimExpr(offset=-1)  # the first position, and the position before it


@dataclass(frozen=True)
class Window:
    """``count`` rows of ``source``: row ``start`` and those after it (before it, where step is -1)."""

    source: Any
    start: DimExpr
    count: DimExpr
    step: int = 1

    @property
    def stop(self) -> DimExpr:
        """The position after the last row."""
        return self.start + self.count * self.step

    def slice(self, length: DimExpr) -> Slice:
        """The slice of ``source``, of ``length`` rows, that takes the window."""
        return Slice(self.start, self.stop, self.step, length)

    def backwards(self) -> Window:
        """The rows of the window in reverse order."""
        return replace(self, start=self.stop - self.step, step=-self.step)

    def part(self, start: DimExpr, count: DimExpr) -> Window:
        """``count`` rows of the window from its row ``start`` on, which must exist."""
        return replace(self, start=self.start + start * self.step, count=count)


class Slice(NamedTuple):
    """The existing rows at ``start``, ``start + step``, ... before ``stop``.

    The array has ``length`` rows, at positions from 0 to ``length - 1``.
    """

    start: DimExpr
    stop: DimExpr
    step: int
    length: DimExpr

    @property
    def span(self) -> tuple[DimExpr, DimExpr]:
        """The range of the rows' positions, as a half-open interval."""
        return (self.start, self.stop) if self.step > 0 else (self.stop + 1, self.start + 1)

    @property
    def is_known(self) -> bool:
        """Whether it is known for each bound from which end it counts."""
        return not any(
            isinstance(v, Bound) for bound in (self.start, self.stop) for v in bound.roots()
        )

    def mirrored(self) -> Slice:
        """The slice that takes these rows from the reversed array."""
        last_position = self.length - 1
        return Slice(last_position - self.start, last_position - self.stop, -self.step, self.length)

    def backwards(self) -> Slice:
        """The rows of the slice in reverse order, if they are adjacent."""
        return Slice(self.stop - self.step, self.start - self.step, -self.step, self.length)

    def takes_all(self, dims: Dims) -> bool:
        """Whether the slice surely takes every row, in either order."""
        low, high = self.span
        side_by_side = self.step in (1, -1)
        return side_by_side and dims.at_least(-low) and dims.at_least(high - self.length)

    def first(self, dims: Dims) -> DimExpr | None:
        """The position of the first row, if there is one; None where it is not known."""
        end, _ = _ends(self.length, self.step)
        beyond = (self.start - end) * (1 if self.step > 0 else -1)
        if dims.at_least(beyond):
            return self.start
        return end if dims.at_least(-beyond) else None

    def window(self, dims: Dims, source: Variable) -> Window | None:
        """The window of ``source`` that the slice takes; None where that is not known."""
        if self.step not in (1, -1):
            return None
        low, high = (_FIRST, self.length) if self.step == 1 else (_BEFORE, self.length - 1)
        start = _clipped(dims, self.start, low, high)
        stop = _clipped(dims, self.stop, low, high)
        if start is None or stop is None:
            return None
        count = (stop - start) * self.step
        if dims.at_least(count):
            return Window(source, start, count, self.step)
        return Window(source, start, DimExpr(), self.step) if dims.at_least(-count) else None

    # -- as a slice of Python --------------------------------------------------------------------

    def entry(self, dims: Dims, number: Callable[[DimExpr], Any]) -> slice | None:
        """The shortest equal slice; None where Python has none, for rows taken backwards.

        ``number`` turns an expression into a variable.
        """
        sign = 1 if self.step > 0 else -1
        first, last = _ends(self.length, self.step)
        bounds: list[Any] = []
        for position, end, outwards in ((self.start, first, -sign), (self.stop, last, sign)):
            if position == end or dims.at_least((position - end) * outwards):
                bounds.append(None)
                continue
            bound = self.bound(dims, position)
            if bound is None and sign > 0:
                bound = dims.clipped(True, position, _FIRST)
            if bound is None:  # a negative bound would mean another row
                return None
            bounds.append(number(bound) if bound.constant is None else bound.constant)
        start, stop = bounds
        return slice(start, stop, None if self.step == 1 else self.step)

    def bound(self, dims: Dims, position: DimExpr) -> DimExpr | None:
        """Express ``position`` as a bound, from either end; None if it may be before the first row."""
        if position.constant is not None and position.constant >= 0:
            return position
        from_end = position - self.length
        if from_end.constant is not None and from_end.constant < 0:
            return from_end
        if dims.at_least(position):
            return position
        return from_end if dims.at_least(-from_end, 1) else None

    def at_end(self, back: bool) -> tuple[slice, int] | None:
        """The slice with numbers that count from the first row, or from the last one with ``back``.

        The second result is the number of rows at that end within which the slice lies. None where it is
        not at that end, or that is not known.
        """
        end = self.length if back else _FIRST
        start, stop = (self.start - end).constant, (self.stop - end).constant
        if start is None or stop is None or (start < 0) != back:
            return None
        forwards = self.step > 0
        rows = (-start if back else stop) if forwards else (-stop - 1 if back else start + 1)
        if stop == (0 if back else -1) and forwards == back:
            stop = None
        elif (stop < 0) != back:
            return None
        step = None if self.step == 1 else self.step
        return slice(start or None if forwards else start, stop, step), rows


def slice_of(dims: Dims, entry: slice, length: DimExpr) -> Slice | None:
    """The slice ``entry`` of an index, over ``length`` rows; None where its step is not known."""
    step = 1 if entry.step is None else dims.value(entry.step).constant
    if not step:
        return None
    start, stop = _ends(length, step)
    if entry.start is not None:
        start = position(dims, entry.start, length)
    if entry.stop is not None:
        stop = position(dims, entry.stop, length)
    return Slice(start, stop, step, length)


def head(stop: DimExpr, length: DimExpr) -> Slice:
    """The slice of the rows before position ``stop`` of ``length`` rows."""
    return Slice(_FIRST, stop, 1, length)


def window_of(dims: Dims, source: TensorVariable, entry: slice, axis: int = 0) -> Window | None:
    """The window of ``source`` that ``entry`` takes along ``axis``; None where it is not known."""
    rows = slice_of(dims, entry, dims.length(source, axis))
    return None if rows is None else rows.window(dims, source)


def position(dims: Dims, index: DimExpr | Variable | int, length: DimExpr) -> DimExpr:
    """The position of ``index`` among ``length`` rows, counted from the end if it is negative.

    It may be out of range.
    """
    value = index if isinstance(index, DimExpr) else dims.value(index)
    if dims.at_least(value):
        return value
    if dims.at_least(-value, 1):
        return value + length
    # In an empty array the last row would be at -1, which as an index means the last row.
    return value if (value - length).constant == -1 else DimExpr.variable(Bound(value, length))


def mirrored_row(index: Any) -> Any:
    """The index in ``x[::-1]`` of row ``index`` of ``x``; both indices raise, or neither."""
    if isinstance(index, Constant):
        return -1 - int(index.data)
    if not isinstance(index.type, DenseTensorType):
        index = pt.tensor_from_scalar(index)
    return -1 - index.astype("int64")


def _ends(length: DimExpr, step: int) -> tuple[DimExpr, DimExpr]:
    """The start and the stop of a slice of all rows."""
    return (_FIRST, length) if step > 0 else (length - 1, _BEFORE)


def _clipped(dims: Dims, position: DimExpr, low: DimExpr, high: DimExpr) -> DimExpr | None:
    """Clip ``position`` to ``low`` and ``high``; None if it is not known which applies."""
    if position is low or dims.at_least(low - position):
        return low
    if position is high or dims.at_least(position - high):
        return high
    return position if dims.at_least(high - position) and dims.at_least(position - low) else None
