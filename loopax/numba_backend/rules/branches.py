"""``Cond`` -> ``if``, ``Call`` in line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopax.ir import Call, Cond
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.source import Slot
from loopax.numba_backend.emit.values import Array, Opaque, Rows, Small, Value
from loopax.numba_backend.rules.loop_states import each


@rule(Call)
def call(site: Site, *values: Value) -> Any:
    given = [site.lent(k, value) for k, value in enumerate(values)]
    return tuple(site.emit.run(site.op.fgraph, given))


@rule(Cond)
def cond(site: Site, condition: Value, *operands: Value) -> Any:
    # A result has the shape that it has in the first branch, until the second one shows another.
    like = set(range(len(site.node.outputs)))
    asked = site.emit.scalar(condition)
    while True:
        mark = site.emit.mark()
        outs, unlike = _branches(site, asked, operands, like)
        if not unlike:
            return outs
        like -= unlike
        site.emit.reset(mark)


def _branches(
    site: Site, asked: str, operands: Sequence[Any], like: set[int]
) -> tuple[Any, set[int]]:
    """The results, and which of those of ``like`` shapes have different ones after all."""
    emit = site.emit
    ready = emit.source.slot()  # the rooms of arrays, which both branches fill
    results: list[Any] = []
    unlike: set[int] = set()
    for head, branch in zip((f"if {asked}:", "else:"), site.op.branches, strict=True):
        with emit.block(head):
            values = emit.run(branch, [site.lent(k + 1, v) for k, v in enumerate(operands)])
            if not results:
                results = [_place(emit, value, k in like, ready) for k, value in enumerate(values)]
            unlike |= {k for k in like if not _same_kind(emit, results[k], values[k])}
            seen: list[str] = []  # lists and generators that are a result
            for place, value in zip(results, values, strict=True) if not unlike else ():
                _fill(emit, place, value, seen)
    return tuple(
        emit.array(r.name, v, fresh=True) if isinstance(r, Array) and None in r.shape else r
        for r, v in zip(results, site.node.outputs, strict=True)
    ), unlike


def _place(emit: Emitter, value: Any, like: bool, ready: Slot) -> Any:
    """What both branches assign: locals, a room, or the name of an array of any shape."""
    if isinstance(value, Rows) and like:
        return Rows(emit.local("rows"), emit.local("n"), value.ndim, value.dtype)
    if isinstance(value, Rows | Opaque):
        return Opaque(emit.local("held"), fresh=True)
    if isinstance(value, Small) and like:
        elements = value.elements.copy()
        for at, _ in each(value):
            elements[at] = emit.local("y")
        return Small(elements, value.dtype)
    if like and emit.scopes.outside(value.shape):
        return Array(emit.room(value.shape, value.dtype, ready), value.shape, value.dtype, True)
    return Array(emit.local("a"), (None,) * len(value.shape), value.dtype)


def _same_kind(emit: Emitter, place: Any, value: Any) -> bool:
    if isinstance(place, Rows):
        return isinstance(value, Rows)
    if isinstance(place, Opaque) or None in place.shape:
        return True
    return emit.scopes.same_shape(place.shape, value.shape)


def _fill(emit: Emitter, place: Any, value: Any, seen: list[str]) -> None:
    if isinstance(place, Opaque):
        own = opaque.changeable(emit, opaque.as_list(emit, value), seen)
        emit.line(f"{place.name} = {own.name}")
    elif isinstance(place, Rows):
        emit.line(f"{place.name} = {value.name}")
        emit.line(f"{place.count} = {value.count}")
    elif isinstance(place, Small):
        for at, name in each(place):
            emit.line(f"{name} = {emit.in_locals(value, place.shape).elements[at]}")
    elif None in place.shape:
        emit.line(f"{place.name} = {emit.fresh(value, reuse=False).name}")
    else:
        emit.copy(value, place.name)
