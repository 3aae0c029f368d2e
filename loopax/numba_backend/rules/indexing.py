"""Reading and writing at integers and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor, Subtensor

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Dim, Expr, Index
from loopax.numba_backend.emit.scalar_expressions import cast
from loopax.numba_backend.emit.scalars import emit_scalar
from loopax.numba_backend.emit.uses import READS_ONCE
from loopax.numba_backend.emit.values import (
    Array,
    Run,
    Small,
    Value,
    Virtual,
    index_before,
    indices_of,
    is_cheap,
    is_static,
    reindexed,
)
from loopax.numba_backend.rules.index_entries import Entry, entries_of, positions_at, static_index

_WRITES = (IncSubtensor, AdvancedIncSubtensor, AdvancedIncSubtensor1)


@rule(Subtensor)
def read(site: Site, x: Value, *values: Value) -> Any:
    emit = site.emit
    if isinstance(x, Small) and (static := static_index(site, values)) is not None:
        try:
            return Small(np.asarray(x.elements[static], dtype=object), x.dtype)
        except IndexError:
            pass  # the program raises if it reaches the index
    x = emit.indexable(x)
    entries = entries_of(site, x, values)

    def at(index: Sequence[Index]) -> Expr:
        return emit.read(x, positions_at(emit, entries, index))

    shape = tuple(e.count for e in entries if e.count is not None)
    declared = site.out.type.shape
    result_shape = tuple(n if d is None else d for n, d in zip(shape, declared, strict=True))
    source, start = emit.run_of(x), _start_of_run(emit, x, entries)
    run = None
    if source is not None and start is not None:
        first: Any = source.start + start if source.start != 0 else start
        run = Run(source.name, first if isinstance(first, int) else emit.number(first))
    value = reindexed(x, result_shape, at, run=run)
    if not site.snapshot:
        return site.result(value)
    is_small = not result_shape or emit.is_small(result_shape)
    return emit.in_locals(value) if is_small else emit.fresh(value)


READS_ONCE[Subtensor] = lambda node, position: True


@rule(IncSubtensor)
def write(site: Site, x: Value, y: Value, *values: Value) -> Any:
    emit = site.emit
    plain = y.dtype == x.dtype
    static = static_index(site, values)
    if isinstance(x, Small) and static is not None and plain and is_static(y.shape):
        return _written_in_locals(site, x, emit.in_locals(y), static)
    entries = entries_of(site, x, values)
    shape = [e.count for e in entries if e.count is not None]
    y = y if emit.is_small(shape) else emit.indexable(y)
    places = Places(
        shape,
        lambda index: positions_at(emit, entries, index),
        static is not None,
        _start_of_run(emit, x, entries),
    )
    return written(site, x, y, places)


@dataclass(frozen=True)
class Places:
    """The positions of a write or read, by their index into ``shape``.

    ``are_constant``: they are loop-invariant. ``start``: they are consecutive in C order from there on.
    """

    shape: Sequence[Dim]
    position: Callable[[Sequence[Index]], Any]
    are_constant: bool = False
    start: Dim | None = None


def written(site: Site, x: Value, y: Value, places: Places) -> Array:
    """Write or add ``y`` to ``x`` at ``places``."""
    emit, shape, skipped = site.emit, places.shape, len(places.shape) - len(y.shape)
    spread = _is_spread(site, y, shape[skipped:])
    if any(spread) and not is_cheap(y):
        y = emit.dense(y)
    target = (_filled(site, x) if places.are_constant else None) or site.target(0, x)
    is_copy = site.op.set_instead_of_inc and y.shape == tuple(shape) and y.dtype == x.dtype
    if is_copy and target.compact and places.start is not None:
        if emit.copied_run(y, target.name, places.start):
            return target
    operator = "=" if site.op.set_instead_of_inc else "+="
    with emit.loops(shape) as indices:
        for index in indices:
            own = index_before(index[skipped:], spread)
            term = cast(emit.read(y, own), y.dtype, x.dtype)
            emit.set(target.name[places.position(index)], term, operator)
    return target


READS_ONCE[IncSubtensor] = lambda node, position: position < 2


def _start_of_run(emit: Emitter, x: Value, entries: Sequence[Entry]) -> Dim | None:
    """The first position of entries that are consecutive in C order; None if they are not.

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


def _filled(site: Site, x: Value) -> Array | None:
    """An array full of the element of ``x``, filled once for all steps, if that is possible.

    A frame of zeros around the entries that each step writes persists: to fill 34 x 34 zeros would take a
    sixth of a step of the heat equation on 32 x 32. Readers that would write to the array get a new one at
    each step instead.
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


def _written_in_locals(site: Site, x: Small, y: Small, index: tuple[slice | int, ...]) -> Small:
    elements = x.elements.copy()
    room = np.shape(elements[index])
    own = room[len(room) - len(y.shape) :]
    if not any(_is_spread(site, y, own)) and y.shape != own:
        return x  # a check has raised
    new = np.broadcast_to(y.elements, room).copy()
    if not site.op.set_instead_of_inc:
        old = np.asarray(elements[index], dtype=object)
        node = ps.add.make_node(*(ps.get_scalar_type(x.dtype)() for _ in range(2)))
        for at in indices_of(new.shape):
            (new[at],) = emit_scalar(site.emit, ps.add, [old[at], new[at]], node)
    elements[index] = new if new.ndim else new[()]
    return Small(elements, x.dtype)


def _is_spread(site: Site, y: Value, shape: Sequence[Dim]) -> list[bool]:
    """Flags for the axes of ``y`` that its type broadcasts to the lengths of ``shape``."""
    axes = [*zip(site.node.inputs[1].type.broadcastable, y.shape, shape, strict=True)]
    for broadcasts, n, m in axes:
        if n != m and not broadcasts:
            site.emit.do("agree", n, m)
    return [broadcasts and m != 1 for broadcasts, _, m in axes]
