"""Reading and writing at integers and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index, as_dim, call, expr
from loopax.numba_backend.emit.scalars import cast, emit_scalar
from loopax.numba_backend.emit.uses import READS_ONCE, reads_only_shape
from loopax.numba_backend.emit.values import Array, Run, Small, Value, Virtual, is_static, traits


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


_WRITES = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)


@rule(Subtensor)
def read(site: Site, x: Value, *values: Value) -> Any:
    emit = site.emit
    if isinstance(x, Small) and (static := _static_index(site, values)) is not None:
        try:
            return Small(np.asarray(x.elements[static], dtype=object), x.dtype)
        except IndexError:
            pass  # the program raises if it reaches the index
    x = emit.indexable(x)
    entries = _entries(site, x, values)

    def at(index: Sequence[Index]) -> Expr:
        return emit.read(x, _positions(emit, entries, index))

    shape = tuple(e.count for e in entries if e.count is not None)
    view = None
    if (
        isinstance(x, Array)
        and x.compact
        and all(
            e.count is None or (e.first, e.step, e.count) == (0, 1, n)
            for e, n in zip(entries, x.shape, strict=True)
        )
    ):  # whole rows of an array
        if [e.count is None for e in entries] == sorted(
            (e.count is None for e in entries), reverse=True
        ):
            view = x.name[[e.first for e in entries if e.count is None]]
    declared = site.out.type.shape
    result_shape = tuple(n if d is None else d for n, d in zip(shape, declared, strict=True))
    source, start = emit.run_of(x), _start_of_run(emit, x, entries)
    run = None
    if source is not None and start is not None:
        first: Any = source.start + start if source.start != 0 else start
        run = Run(source.name, first if isinstance(first, int) else emit.number(first))
    value = Virtual(result_shape, x.dtype, at, view=view, run=run, **traits(x))
    if not site.snapshot:
        return site.result(value)
    is_small = not result_shape or emit.is_small(result_shape)
    return emit.in_locals(value) if is_small else emit.fresh(value)


READS_ONCE[Subtensor] = lambda node, position: True


@rule(IncSubtensor)
def write(site: Site, x: Value, y: Value, *values: Value) -> Any:
    emit = site.emit
    plain = y.dtype == x.dtype
    static = _static_index(site, values)
    if isinstance(x, Small) and static is not None and plain and is_static(y.shape):
        return _written_in_locals(site, x, emit.in_locals(y), static)
    entries = _entries(site, x, values)
    shape = [e.count for e in entries if e.count is not None]
    y = y if emit.is_small(shape) else emit.indexable(y)
    places = Places(
        shape,
        lambda index: _positions(emit, entries, index),
        static is not None,
        _start_of_run(emit, x, entries),
    )
    return written(site, x, y, places)


@dataclass(frozen=True)
class Places:
    """The positions in an array, by their index into ``shape``.

    ``are_constant``: they are the same at each step. ``start``: they are a run in C order from there on.
    """

    shape: Sequence[Dim]
    position: Callable[[Sequence[Index]], Any]
    are_constant: bool = False
    start: Dim | None = None


def written(site: Site, x: Value, y: Value, places: Places) -> Array:
    """Write or add ``y`` to ``x`` at ``places``."""
    emit, shape, skipped = site.emit, places.shape, len(places.shape) - len(y.shape)
    spread = _is_spread(site, y, shape[skipped:])
    if isinstance(y, Virtual) and not y.cheap and any(spread):
        y = emit.dense(y)
    target = (_filled(site, x) if places.are_constant else None) or _target(site, x)
    is_copy = site.op.set_instead_of_inc and y.shape == tuple(shape) and y.dtype == x.dtype
    if is_copy and target.compact and places.start is not None:
        if emit.copied_run(y, target.name, places.start):
            return target
    operator = "=" if site.op.set_instead_of_inc else "+="
    with emit.loops(shape) as indices:
        for index in indices:
            own = [
                0 if is_spread else i for i, is_spread in zip(index[skipped:], spread, strict=True)
            ]
            term = cast(emit.read(y, own), y.dtype, x.dtype)
            emit.set(target.name[places.position(index)], term, operator)
    return target


READS_ONCE[IncSubtensor] = lambda node, position: position < 2


def _start_of_run(emit: Emitter, x: Value, entries: Sequence[Entry]) -> Dim | None:
    """The first position of entries that follow one another in C order; None where they do not.

    They are integers, then at most one slice, then whole axes.
    """
    n_numbers = next((k for k, e in enumerate(entries) if e.count is not None), len(entries))
    whole = zip(entries[n_numbers + 1 :], x.shape[n_numbers + 1 :], strict=True)
    is_run = (
        n_numbers < len(entries)
        and entries[n_numbers].step == 1
        and all(isinstance(n, int) and (e.first, e.step, e.count) == (0, 1, n) for e, n in whole)
    )
    if not is_run or not is_static(x.shape[1:]):
        return None
    start: Any = 0
    for e, n in zip(entries, x.shape, strict=True):
        start = start * n + e.first
    return start if isinstance(start, int) else emit.number(start)


def _target(site: Site, x: Value) -> Array:
    """The array to write into: ``x`` itself where it is unshared, else a copy."""
    in_place = site.in_place or _only_use(site)
    if isinstance(x, Array) and x.fresh and in_place:
        return x
    return site.emit.fresh(x)


def _filled(site: Site, x: Value) -> Array | None:
    """An array full of the element of ``x``, filled once for all steps, if that is possible.

    A frame of zeros around the entries that each step writes stays as it is: 34 x 34 zeros take a sixth of
    a step of the heat equation on 32 x 32. Readers that would write to the array get a new one at each
    step instead.
    """
    is_read = all(
        client is not None and not (isinstance(client.op, _WRITES) and position == 0)
        for client, position in site.uses[site.out]
    )
    if not (
        is_read and isinstance(x, Virtual) and x.element is not None and site.op.set_instead_of_inc
    ):
        return None
    name = site.emit.filled(x.shape, x.dtype, x.element)
    return None if name is None else Array(name, x.shape, x.dtype, compact=True)


def _only_use(site: Site) -> bool:
    """Whether the node is the only reader of the array, so that it can write in place."""
    return all(
        (client is site.node and position == 0) or reads_only_shape(client, position)
        for client, position in site.uses[site.node.inputs[0]]
    )


def _written_in_locals(site: Site, x: Small, y: Small, index: Any) -> Small:
    elements = x.elements.copy()
    room = np.shape(elements[index])
    own = room[len(room) - len(y.shape) :]
    if not any(_is_spread(site, y, own)) and y.shape != own:
        return x  # a check has raised
    new = np.broadcast_to(y.elements, room).copy()
    if not site.op.set_instead_of_inc:
        old = np.asarray(elements[index], dtype=object)
        node = ps.add.make_node(*(ps.get_scalar_type(x.dtype)() for _ in range(2)))
        for at in np.ndindex(*new.shape):
            (new[at],) = emit_scalar(site.emit, ps.add, [old[at], new[at]], node)
    elements[index] = new if new.ndim else new[()]
    return Small(elements, x.dtype)


def _is_spread(site: Site, y: Value, shape: Sequence[Dim]) -> list[bool]:
    """Flags of the axes of ``y`` that its type broadcasts to the lengths of ``shape``."""
    axes = [*zip(site.node.inputs[1].type.broadcastable, y.shape, shape, strict=True)]
    for broadcasts, n, m in axes:
        if n != m and not broadcasts:
            site.emit.do("agree", n, m)
    return [broadcasts and m != 1 for broadcasts, _, m in axes]


# -- indices ---------------------------------------------------------------------------------------


def _index(site: Site, values: Sequence[Value]) -> list[Any]:
    return list(indices_from_subtensor(list(values), site.op.idx_list))


def read_entry(emit: Emitter, entry: Any) -> Any:
    """A part of an index: an integer where it is static, else an expression of int64."""
    if entry is None or isinstance(entry, int):
        return entry
    dim = as_dim(emit.scalar(entry))
    return signed(dim, entry.dtype)


def signed(k: Dim, dtype: str) -> Dim:
    """Convert ``k`` to a signed integer: arithmetic of uint64 with int64 would give a float."""
    return call("signed", k) if isinstance(k, Expr) and dtype == "uint64" else k


def _static_index(site: Site, values: Sequence[Value]) -> Any:
    """The index as a Python index; None where it is dynamic."""
    python_index: list[Any] = []
    for entry in _index(site, values):
        parts = [entry.start, entry.stop, entry.step] if isinstance(entry, slice) else [entry]
        numbers = [read_entry(site.emit, p) for p in parts]
        if any(isinstance(n, Expr) for n in numbers):
            return None
        python_index.append(slice(*numbers) if isinstance(entry, slice) else numbers[0])
    return tuple(python_index)


def _positions(emit: Emitter, entries: Sequence[Entry], index: Sequence[Index]) -> list[Index]:
    remaining = iter(index)
    return [e.position(emit, 0 if e.count is None else next(remaining)) for e in entries]


def _entries(site: Site, x: Value, values: Sequence[Value]) -> list[Entry]:
    emit = site.emit
    index = _index(site, values)
    index += [slice(None)] * (len(x.shape) - len(index))
    return [
        slice_entry(emit, entry, n) if isinstance(entry, slice) else _integer(emit, entry, n)
        for entry, n in zip(index, x.shape, strict=True)
    ]


def _integer(emit: Emitter, entry: Any, n: Dim) -> Entry:
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
