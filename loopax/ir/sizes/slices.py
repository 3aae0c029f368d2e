"""Which rows a slice takes, as positions; windows of an array; slices written back.

    x[-3:]            rows n - 3 up to n              of n rows
    x[::-1][a:b]      rows n - 1 - a down to n - b
    x[1:][::-1]       n - 1 rows from n - 1 on, backwards

A `Slice` is what an index says: positions, which may lie before the first row or behind the last one, where
no rows are. So it is affine in the length of the array, and turns and shifts are arithmetic. A `Window` is
what is proved to be there: so many rows, from a row that is there on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.tensor.type import DenseTensorType

from loopax.ir.sizes.analysis import Dims
from loopax.ir.sizes.dim_expr import Bound, DimExpr

_FIRST, _BEFORE = DimExpr(), DimExpr(offset=-1)  # the first position, and that before it


@dataclass(frozen=True)
class Window:
    """``count`` rows of ``source``: row ``start`` and those after it (before it, where step is -1)."""

    source: Any
    start: DimExpr
    count: DimExpr
    step: int = 1

    @property
    def stop(self) -> DimExpr:
        """The position behind the last row."""
        return self.start + self.count * self.step

    def slice(self, length: DimExpr) -> Slice:
        """The slice of ``source``, of ``length`` rows, that takes it."""
        return Slice(self.start, self.stop, self.step, length)

    def backwards(self) -> Window:
        """The window's rows, the last one first."""
        return replace(self, start=self.stop - self.step, step=-self.step)

    def part(self, start: DimExpr, count: DimExpr) -> Window:
        """``count`` of its rows from number ``start`` on, which it is known to have."""
        return replace(self, start=self.start + start * self.step, count=count)


class Slice(NamedTuple):
    """The rows at ``start``, ``start + step``, ... before ``stop``, as far as there are any.

    The array has ``length`` rows, at positions from 0 to ``length - 1``.
    """

    start: DimExpr
    stop: DimExpr
    step: int
    length: DimExpr

    @property
    def span(self) -> tuple[DimExpr, DimExpr]:
        """The positions that they lie between: from the first of the two on, before the second."""
        return (self.start, self.stop) if self.step > 0 else (self.stop + 1, self.start + 1)

    @property
    def is_known(self) -> bool:
        """Whether no bound of it may count from either end."""
        return not any(isinstance(v, Bound) for at in (self.start, self.stop) for v in at.roots())

    def mirrored(self) -> Slice:
        """The slice that takes these rows from the array turned backwards."""
        last = self.length - 1
        return Slice(last - self.start, last - self.stop, -self.step, self.length)

    def backwards(self) -> Slice:
        """The slice's rows, the last one first, where they lie side by side."""
        return Slice(self.stop - self.step, self.start - self.step, -self.step, self.length)

    def takes_all(self, dims: Dims) -> bool:
        """Whether it surely takes every row, be it backwards."""
        low, high = self.span
        side_by_side = self.step in (1, -1)
        return side_by_side and dims.at_least(-low) and dims.at_least(high - self.length)

    def first(self, dims: Dims) -> DimExpr | None:
        """The position of the first row, if there is one; None where nobody can tell."""
        end, _ = _ends(self.length, self.step)
        beyond = (self.start - end) * (1 if self.step > 0 else -1)
        if dims.at_least(beyond):
            return self.start
        return end if dims.at_least(-beyond) else None

    def window(self, dims: Dims, source: Any) -> Window | None:
        """The rows of ``source`` that it takes; None where nobody can tell which are there."""
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

    # -- written back ----------------------------------------------------------------------------

    def entry(self, dims: Dims, number: Callable[[DimExpr], Any]) -> slice | None:
        """The slice in the fewest words, None where one that goes backwards cannot say it.

        ``number`` makes a variable of an expression.
        """
        sign = 1 if self.step > 0 else -1
        first, last = _ends(self.length, self.step)
        words: list[Any] = []
        for at, end, outwards in ((self.start, first, -sign), (self.stop, last, sign)):
            if at == end or dims.at_least((at - end) * outwards):
                words.append(None)
                continue
            bound = self.bound(dims, at)
            if bound is None and sign > 0:
                bound = dims.clipped(True, at, _FIRST)
            if bound is None:  # where it may be negative it would mean another row
                return None
            words.append(number(bound) if bound.constant is None else bound.constant)
        first_word, last_word = words
        return slice(first_word, last_word, None if self.step == 1 else self.step)

    def bound(self, dims: Dims, at: DimExpr) -> DimExpr | None:
        """``at`` as a bound, which may count from the last row; None where it may be before the first."""
        if at.constant is not None and at.constant >= 0:
            return at
        behind = at - self.length
        if behind.constant is not None and behind.constant < 0:
            return behind
        if dims.at_least(at):
            return at
        return behind if dims.at_least(-behind, 1) else None

    def at_end(self, back: bool) -> tuple[slice, int] | None:
        """The slice in numbers that count from the first row, with ``back`` from the last.

        And how many rows at that end it lies within. None where it is not at that end, or nobody knows.
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
    """What ``entry``, of an index, takes of ``length`` rows; None where nobody knows its step."""
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
    """The rows before position ``stop`` of ``length`` rows."""
    return Slice(_FIRST, stop, 1, length)


def window_of(dims: Dims, source: Any, entry: slice, axis: int = 0) -> Window | None:
    """What ``entry`` takes of ``source`` along ``axis``; None where nobody can tell what is there."""
    found = slice_of(dims, entry, dims.length(source, axis))
    return None if found is None else found.window(dims, source)


def position(dims: Dims, index: Any, length: DimExpr) -> DimExpr:
    """The position that ``index``, an integer, has among ``length`` rows: from the end if it is negative.

    It may lie outside, where there is no row.
    """
    at = index if isinstance(index, DimExpr) else dims.value(index)
    if dims.at_least(at):
        return at
    if dims.at_least(-at, 1):
        return at + length
    # The row before the end is at -1 where there is none, and -1 is the row before the end.
    return at if (at - length).constant == -1 else DimExpr.variable(Bound(at, length))


def mirrored_row(index: Any) -> Any:
    """The index in ``x[::-1]`` of row ``index`` of ``x``: an error for the one is one for the other."""
    if isinstance(index, Constant):
        return -1 - int(index.data)
    if not isinstance(index.type, DenseTensorType):
        index = pt.tensor_from_scalar(index)
    return -1 - index.astype("int64")


def _ends(length: DimExpr, step: int) -> tuple[DimExpr, DimExpr]:
    """Where a slice of all rows starts, and where it stops."""
    return (_FIRST, length) if step > 0 else (length - 1, _BEFORE)


def _clipped(dims: Dims, at: DimExpr, low: DimExpr, high: DimExpr) -> DimExpr | None:
    """``at``, ``low`` if it is lower, ``high`` if it is higher; None where nobody knows which."""
    if at is low or dims.at_least(low - at):
        return low
    if at is high or dims.at_least(at - high):
        return high
    return at if dims.at_least(high - at) and dims.at_least(at - low) else None
