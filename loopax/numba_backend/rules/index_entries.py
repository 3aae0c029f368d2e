"""The entries of an index, integers and slices, as positions and lengths in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopax.base.upstream.pytensor import indices_from_subtensor
from loopax.numba_backend.emit.emitter import Emitter, Site
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_dim, call, expr
from loopax.numba_backend.emit.values import Value


@dataclass(frozen=True)
class Entry:
    """An index of one axis: ``count`` positions ``first + k * step``; None for an integer."""

    first: Dim
    step: Dim
    count: Dim | None

    def position(self, emit: Emitter, k: Index) -> Index:
        if self.count is None or k == 0:
            return self.first
        if self.step == -1:
            return emit.number(self.first - k)
        return emit.number(self.first + k * self.step)


def _index(site: Site, values: Sequence[Value]) -> list[Any]:
    return list(indices_from_subtensor(list(values), site.op.idx_list))


def read_entry(emit: Emitter, entry: Value | None) -> Any:
    """A part of an index: an integer where it is static, else an expression of int64."""
    if entry is None or isinstance(entry, int):
        return entry
    dim = as_dim(emit.scalar(entry))
    return signed(dim, entry.dtype)


def signed(k: Dim, dtype: str) -> Dim:
    """Convert ``k`` to a signed integer: arithmetic of uint64 with int64 would give a float."""
    return call("signed", k) if isinstance(k, Expr) and dtype == "uint64" else k


def static_index(site: Site, values: Sequence[Value]) -> Any:
    """The index as a Python index; None where it is dynamic."""
    python_index: list[Any] = []
    for entry in _index(site, values):
        parts = [entry.start, entry.stop, entry.step] if isinstance(entry, slice) else [entry]
        numbers = [read_entry(site.emit, p) for p in parts]
        if any(isinstance(n, Expr) for n in numbers):
            return None
        python_index.append(slice(*numbers) if isinstance(entry, slice) else numbers[0])
    return tuple(python_index)


def positions_at(emit: Emitter, entries: Sequence[Entry], index: Sequence[Index]) -> list[Index]:
    remaining = iter(index)
    return [e.position(emit, 0 if e.count is None else next(remaining)) for e in entries]


def entries_of(site: Site, x: Value, values: Sequence[Value]) -> list[Entry]:
    emit = site.emit
    index = _index(site, values)
    index += [slice(None)] * (len(x.shape) - len(index))
    return [
        slice_entry(emit, entry, n) if isinstance(entry, slice) else _integer(emit, entry, n)
        for entry, n in zip(index, x.shape, strict=True)
    ]


def _integer(emit: Emitter, entry: Value, n: Dim) -> Entry:
    k = read_entry(emit, entry)
    if isinstance(k, int) and isinstance(n, int):
        if not -n <= k < n:
            emit.fail("IndexError", "index is out of bounds")
            return Entry(0, 1, None)
        return Entry(k % n, 1, None)
    return Entry(emit.position(k, n), 1, None)


def slice_entry(emit: Emitter, entry: slice, n: Dim) -> Entry:
    start, stop, step = (read_entry(emit, e) for e in (entry.start, entry.stop, entry.step))
    step = 1 if step is None else step
    if step == 1 and stop is None and start in (None, 0):
        return Entry(0, 1, n)
    if all(e is None or isinstance(e, int) for e in (start, stop, step, n)):
        positions = range(n)[slice(start, stop, step)]  # type: ignore[arg-type]
        return Entry(positions.start, step, len(positions))
    if step == -1 and start is None and stop is None:
        return Entry(emit.number(n - 1), -1, n)
    if isinstance(step, Expr):
        start = expr("0 if {} > 0 else {}", step, n - 1) if start is None else start
        stop = expr("{} if {} > 0 else {}", n, step, -1 - n) if stop is None else stop
        function = "slice_bounds"
    elif step > 0:
        start, stop = 0 if start is None else start, n if stop is None else stop
        function = "slice_forward"
    else:
        start = n - 1 if start is None else start
        stop = -1 - n if stop is None else stop
        function = "slice_backward"
    may_raise = isinstance(step, Expr)  # it may be zero
    bounds = emit.number(call(function, start, stop, step, n), may_raise=may_raise)
    return Entry(emit.number(bounds[0]), step, emit.number(bounds[1], "n"))
