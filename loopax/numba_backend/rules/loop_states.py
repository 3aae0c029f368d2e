"""The states of a loop: where they are held, and how they become those of the next step.

Scalars and small arrays are locals that each step assigns anew. A buffer, a state that the body only
writes rows into, is one array for the whole loop. Any other array keeps its memory as long as its shape
stays the same: it and what follows it change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.typed_list import Append

from loopax.ir import Scan
from loopax.ir.sizes import DimExpr, Length, body_dims
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Emitter, Site
from loopax.numba_backend.emit.expressions import Dim, Expr
from loopax.numba_backend.emit.values import Array, Opaque, Rows, Small
from loopax.numba_backend.rules.lists import copied


def started(site: Site, k: int, value: Any, steady: bool, written: bool) -> Any:
    """A state before the first step: locals, or memory, that are its own."""
    emit = site.emit
    if isinstance(value, Small) and steady and not written:
        return _locals(emit, value)
    if isinstance(value, Rows) and _keeps_rows(site.op, k):
        return copied(emit, value)
    if isinstance(value, Rows | Opaque):
        return site.owned(k + 1, opaque.as_list(emit, value))
    alone = len(site.uses[site.node.inputs[k + 1]]) == 1
    own = value if isinstance(value, Array) and value.fresh and alone else emit.fresh(value)
    if steady:
        emit.scopes.rooms.add(own.name)
        return own
    # Each step gives the name to another array; the room of this one is not to be lost.
    return Array(emit.temp(own.name, "a"), own.shape, own.dtype)


def names(states: Sequence[Any]) -> list[Expr]:
    return [
        name
        for s in states
        for name in (
            s.elements.flat
            if isinstance(s, Small)
            else [s.name, s.count]
            if isinstance(s, Rows)
            else [s.name]
        )
    ]


def keeps(emit: Emitter, op: Scan, values: Sequence[Any], k: int) -> list[bool | None]:
    """For each axis of state ``k`` of a loop of ``values`` whether its length stays the same.

    None where that can only be told when the loop runs.
    """
    known = {
        Length(v, axis): _length(emit, n)
        for v, value in zip(op.fgraph.inputs[1:], values, strict=True)
        for axis, n in enumerate(getattr(value, "shape", ()))
    }
    starts = [_length(emit, n) for n in getattr(values[k], "shape", ())]
    dims = body_dims(op)
    return [dims.keeps_its_start(k, axis, n, known.get) for axis, n in enumerate(starts)]


def _length(emit: Emitter, n: Dim) -> DimExpr:
    n = emit.scopes.canonical(n)
    return DimExpr(offset=n) if isinstance(n, int) else DimExpr.variable(n)


def of_the_same_shape(
    emit: Emitter, state: Any, following: Any, kept: Sequence[bool | None]
) -> Any:
    """``following``, which has the shape of ``state`` from here on: checked where that is not known."""
    if isinstance(state, Rows | Opaque):
        return following
    for n, m, known in zip(following.shape, state.shape, kept, strict=True):
        if emit.scopes.same(n, m):
            continue
        if isinstance(n, int) and isinstance(m, int):
            if not known:
                emit.check("keeps", n, m)
            return state  # something has raised by now
        pair = (n, m) if isinstance(n, Expr) else (m, n)
        if known:
            emit.scopes.unify(*pair)
        else:
            emit.equate("keeps", *pair)
    return following


def step(emit: Emitter, pairs: Sequence[tuple[Any, Any]]) -> None:
    """The states become those that follow, all at once."""
    names: list[Expr] = []
    expressions: list[Expr] = []
    arrays: list[tuple[Array, Any]] = []
    seen: list[Expr] = []  # lists and generators that a state has become
    for state, value in pairs:
        if isinstance(state, Small):
            names += list(state.elements.flat)
            expressions += list(emit.in_locals(value, state.shape).elements.flat)
        elif isinstance(state, Rows):  # nothing, where it was appended to in place
            names += [state.name, state.count]
            expressions += [value.name, value.count]
        elif isinstance(state, Opaque):
            names.append(state.name)
            expressions.append(opaque.changeable(emit, opaque.as_list(emit, value), seen).name)
        elif emit.is_room(state):
            arrays.append((state, value))
        elif value != state:  # of another shape: a new array at each step
            own = isinstance(value, Array) and value.fresh and not emit.is_room(value)
            names.append(state.name)
            expressions.append((value if own else emit.fresh(value, reuse=False)).name)
    moved, later = _exchanged(emit, arrays)
    changing = emit.scopes.changing  # another state by the time that it is written
    written = [
        (state.name, at, emit.temp(found) if found in changing else found)
        for state, value in later
        for at, found in np.ndenumerate(value.elements)
    ]
    emit.assign([*names, *moved], [*expressions, *moved.values()])
    for name, at, found in written:
        emit.set(name[at], found)


def _exchanged(
    emit: Emitter, arrays: Sequence[tuple[Array, Any]]
) -> tuple[dict[Expr, Expr], list[tuple[Array, Small]]]:
    """Whose memory each array gets, and what is then to be written into a state element by element.

    The names change places among the same rooms: where a state was, the next step writes what follows.
    """
    kinds: dict[Any, list[tuple[Array, Any]]] = {}  # those that may change places
    for state, value in arrays:
        shape = tuple(map(emit.scopes.canonical, state.shape))
        kinds.setdefault((shape, state.dtype), []).append((state, value))
    becomes: dict[Expr, Expr] = {}
    for group in kinds.values():
        becomes |= _permuted(emit, group)
    return becomes, [(s, value) for s, value in arrays if isinstance(value, Small)]


def _permuted(emit: Emitter, arrays: Sequence[tuple[Array, Any]]) -> dict[Expr, Expr]:
    """`_exchanged`, for arrays of one shape."""
    held = [state.name for state, _ in arrays]
    becomes: dict[Expr, Expr] = {}
    for state, value in arrays:
        if isinstance(value, Small):
            continue
        own = isinstance(value, Array) and (
            value.fresh and emit.is_room(value) or value.name in held
        )
        taken = own and value.name in becomes.values()
        becomes[state.name] = value.name if own and not taken else emit.fresh(value).name
    names = dict.fromkeys([*held, *becomes.values()])
    left = [name for name in names if name not in becomes.values()]
    for name in [n for n in left if n not in becomes]:
        becomes[name] = name
        left.remove(name)
    becomes.update(zip([n for n in names if n not in becomes], left, strict=True))
    return becomes


def _keeps_rows(op: Scan, k: int) -> bool:
    """Whether the body only appends to a trace, so that it stays in one buffer."""
    out = op.outs.states[k]
    while out.owner is not None and isinstance(out.owner.op, Append):
        out = out.owner.inputs[0]
    return out is op.args.states[k]


def _locals(emit: Emitter, value: Small) -> Small:
    """A local for each element, of the dtype that it keeps: a literal's type would be another."""
    elements = value.elements.copy()
    for at, x in np.ndenumerate(value.elements):
        elements[at] = emit.temp(x if value.dtype == "bool" else x.astype(value.dtype), "s")
    return Small(elements, value.dtype)
