"""Reading and writing at arrays of integers, and at masks.

Nothing is gathered before it is read: an element of the result is the element of the source at an index
that is read, checked and counted from the end where it is negative. A mask is the positions where it is
true, which are counted first and then written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1, adds_last_only
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_dim, call
from loopax.numba_backend.emit.leaf import leaf
from loopax.numba_backend.emit.scalars import cast
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import Array, Small, Value, Virtual, is_static
from loopax.numba_backend.rules.indexing import Entry, read_entry, signed, slice_entry, written


@dataclass(frozen=True)
class Gather:
    """An axis that is read at integers. ``strides`` say how their own axes are read: 0 is broadcast.

    ``in_range`` says that none is negative, and none beyond the end.
    """

    integers: Value
    strides: tuple[Dim, ...]
    length: Dim
    in_range: bool = False

    def position(self, emit: Emitter, at: Sequence[Index]) -> Index:
        own = at[len(at) - len(self.strides) :]
        where = [emit.number(i * s) for i, s in zip(own, self.strides, strict=True)]
        if self.in_range:
            return emit.read(self.integers, where)
        loop = emit.loop_over_others(where) if isinstance(self.integers, Array) else None
        if loop is not None:
            # One check for a row, whose elements are then read or written by vector code.
            k = emit.before_loop(loop, self.integers.name[where], where, "t")
            k = _as_int64(k, self.integers.dtype)
            return emit.before_loop(loop, call("index", k, self.length), where, "k")
        return _position(emit, emit.read(self.integers, where), self.integers.dtype, self.length)


@dataclass(frozen=True)
class Selection:
    """An index as a whole: what it does to each axis, and the shape of what it reads."""

    axes: list[Entry | Gather]
    shape: tuple[Dim, ...]
    first: int  # of the axes of the result that the integers make
    rank: int  # how many these are

    def positions(self, emit: Emitter, at: Sequence[Index]) -> list[Index]:
        gathered = at[self.first : self.first + self.rank]
        rest = iter([*at[: self.first], *at[self.first + self.rank :]])
        return [
            axis.position(emit, gathered)
            if isinstance(axis, Gather)
            else axis.position(emit, next(rest))
            for axis in self.axes
        ]

    def is_in_memory(self) -> bool:
        """Whether the integers are there, and need not be computed."""
        return all(isinstance(a, Entry) or isinstance(a.integers, Array) for a in self.axes)


@rule(AdvancedSubtensor, AdvancedSubtensor1)
def read(site: Site, x: Value, *values: Value) -> Any:
    emit = site.emit
    index = _index(site, values)
    if isinstance(x, Small) and (static := _static(emit, index, x.shape)) is not None:
        found = np.asarray(x.elements[static], dtype=object)
        if emit.is_small(found.shape):
            return Small(found, x.dtype)
    # An element may be read many times.
    x = emit.dense(x) if isinstance(x, Virtual) and not x.cheap else emit.indexable(x)
    chosen = _selection(site, x, index)
    declared = site.out.type.shape
    shape = tuple(n if d is None else d for n, d in zip(chosen.shape, declared, strict=True))

    def at(where: Sequence[Index]) -> Expr:
        return emit.read(x, chosen.positions(emit, where))

    # Rows in memory, at integers in memory: to keep the elements costs more than to find them again.
    # A step of a loop has its room already, and may write to x later.
    is_there = isinstance(x, Array) or (isinstance(x, Virtual) and x.cheap)
    gathered = isinstance(chosen.axes[-1], Gather)  # element by element
    light = is_there and not (gathered or emit.scopes.frames) and chosen.is_in_memory()
    return site.result(Virtual(shape, x.dtype, at, cheap=False, light=light, is_gathered=gathered))


@rule(AdvancedIncSubtensor, AdvancedIncSubtensor1)
def write(site: Site, x: Value, y: Value, *values: Value) -> Any:
    emit, op = site.emit, site.op
    if adds_last_only(op):
        return leaf(site, x, y, *values)
    chosen = _selection(site, x, _index(site, values))
    shape = chosen.shape
    if len(y.shape) > len(shape):
        return leaf(site, x, y, *values)
    y = y if emit.is_small(shape) else emit.for_scalar_code(y)
    return written(site, x, y, shape, lambda index: chosen.positions(emit, index))


READS_ONCE[AdvancedIncSubtensor] = READS_ONCE[AdvancedIncSubtensor1] = lambda node, position: (
    position < 2
)


@rule(Nonzero)
def nonzero(site: Site, x: Value) -> Any:
    return _true_positions(site.emit, x)


# -- what an index is ------------------------------------------------------------------------------


def _index(site: Site, values: Sequence[Value]) -> list[Any]:
    """The index as Python writes it: values, and slices of values."""
    if isinstance(site.op, AdvancedSubtensor1 | AdvancedIncSubtensor1):
        return list(values)
    return list(indices_from_subtensor(list(values), site.op.idx_list))


def _static(emit: Emitter, index: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The index as NumPy's own, None where it is not known now or out of bounds."""
    found: list[Any] = []
    for entry, n in zip(index, shape, strict=False):
        if isinstance(entry, slice):
            parts = [read_entry(emit, e) for e in (entry.start, entry.stop, entry.step)]
            if any(isinstance(p, Expr) for p in parts):
                return None
            found.append(slice(*parts))
            continue
        if not isinstance(entry, Small) or entry.dtype == "bool":
            return None
        numbers = [as_dim(e) for e in entry.elements.flat]
        if not is_static(numbers) or not all(-n <= k < n for k in numbers):  # type: ignore[operator]
            return None
        found.append(np.array(numbers, dtype=int).reshape(entry.shape))
    return tuple(found)


def _selection(site: Site, x: Value, index: Sequence[Any]) -> Selection:
    emit = site.emit
    entries: list[Any] = []
    for entry in index:
        if not isinstance(entry, slice) and entry.dtype == "bool":
            for n, m in zip(entry.shape, x.shape[len(entries) :], strict=False):
                if n != m:
                    emit.do("mask_length", n, m)
            known = _known_mask(emit, entry)
            entries += (
                _true_positions(emit, entry)
                if known is None
                else [emit.constant_array(k) for k in known.nonzero()]
            )
        else:
            entries.append(entry)
    entries += [slice(None)] * (len(x.shape) - len(entries))
    gathers = [k for k, entry in enumerate(entries) if not isinstance(entry, slice)]
    together = gathers == list(range(gathers[0], gathers[-1] + 1))
    shape = _broadcast(emit, [entries[k].shape for k in gathers])
    axes: list[Entry | Gather] = []
    for entry, n in zip(entries, x.shape, strict=True):
        if isinstance(entry, slice):
            axes.append(slice_entry(emit, entry, n))
        else:
            own = shape[len(shape) - len(entry.shape) :]
            steps = tuple(_step(emit, a, b) for a, b in zip(entry.shape, own, strict=True))
            entry, in_range = _checked_now(emit, emit.indexable(entry), n)
            axes.append(Gather(entry, steps, n, in_range))
    # The axes of the integers stand where these do, or first where a slice is between two of them.
    first = gathers[0] if together else 0
    lengths = [axis.count for axis in axes if isinstance(axis, Entry)]
    whole = (*lengths[:first], *shape, *lengths[first:])
    return Selection(axes, whole, first, len(shape))  # type: ignore[arg-type]


def _known_mask(emit: Emitter, mask: Value) -> np.ndarray | None:
    if isinstance(mask, Small):
        values = [e.value for e in mask.elements.flat]
        known = None not in values and mask.shape
        return np.array(values, dtype=bool).reshape(mask.shape) if known else None
    return emit.constant_data(mask)


def _checked_now(emit: Emitter, entry: Value, n: Dim) -> tuple[Value, bool]:
    """Constant integers as positions from the beginning, if they are within an axis of length ``n``.

    A loop over indices that are checked, one by one, is not made vector code.
    """
    data = emit.constant_data(entry)
    if data is None or not data.size or data.dtype.kind not in "iu":
        return entry, False
    low, high = int(data.min()), int(data.max())
    if isinstance(n, int):
        if not -n <= low <= high < n:
            return entry, False
        data = np.where(data < 0, data.astype(np.int64) + n, data)
    elif low < 0:
        return entry, False
    else:
        emit.do("index", high, n)
    return emit.constant_array(data.astype(np.int64, copy=False)), True


def _broadcast(emit: Emitter, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    found: list[Dim] = []
    for dims in zip(*padded, strict=True):
        first, *rest = dict.fromkeys(n for n in dims if n != 1) or {1: None}
        for n in rest:
            first = emit.temp(call("broadcast_index", first, n), "n")
        found.append(first)
    return tuple(found)


def _step(emit: Emitter, n: Dim, m: Dim) -> Dim:
    if n == m or n == 1:
        return 1 if n == m else 0
    return emit.number(call("stride", n, m), may_raise=True)


def _position(emit: Emitter, k: Expr, dtype: str, n: Dim) -> Index:
    known = as_dim(k)
    if isinstance(known, int) and isinstance(n, int):
        if not -n <= known < n:
            emit.fail("IndexError", "index is out of bounds")
            return 0
        return known % n
    k = k if isinstance(known, int) else _as_int64(k, dtype)
    return emit.number(call("index", k, n), may_raise=True)


def _as_int64(k: Expr, dtype: str) -> Any:
    return signed(k, dtype) if dtype in ("int64", "uint64") else k.astype("int64")


def _true_positions(emit: Emitter, mask: Value) -> tuple[Array, ...]:
    """For each axis, where ``mask`` is true."""
    mask = emit.dense(mask)
    count = emit.temp(0, "n")
    with emit.loops(mask.shape) as indices:
        for at in indices:
            with emit.when(cast(emit.read(mask, at), mask.dtype, "bool")):
                emit.set(count, count + 1)
    names = [emit.empty([count], "int64") for _ in mask.shape]
    k = emit.temp(0, "k")
    with emit.loops(mask.shape) as indices:
        for at in indices:
            with emit.when(cast(emit.read(mask, at), mask.dtype, "bool")):
                for name, i in zip(names, at, strict=True):
                    emit.set(name[k], i)
                emit.set(k, k + 1)
    return tuple(Array(name, (count,), "int64", fresh=True) for name in names)
