"""States of a loop: their storage, and the transition to the states of the next step.

Scalars and small arrays are locals that each step assigns. A buffer, a state of which the body only writes
rows, is one array for the whole loop, and so is one to which each step adds. Any other array of constant
shape has two arrays in memory: the successor is copied to the state, or the two exchange their memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from pytensor.typed_list import Append

from loopax.facts.elementwise import is_elementwise
from loopax.ir import Scan
from loopax.ir.sizes import DimExpr, Length, body_dims
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Emitter, Site
from loopax.numba_backend.emit.expressions import Dim, Expr
from loopax.numba_backend.emit.uses import uses_of
from loopax.numba_backend.emit.values import (
    Array,
    EmittedValue,
    Opaque,
    Rows,
    Small,
    Virtual,
    is_static,
)
from loopax.numba_backend.rules.lists import copied

_COPIED = 64  # the most elements of a state that each step copies


def started(site: Site, k: int, value: EmittedValue, steady: bool, written: bool) -> Any:
    """Initialise a state before the first step, in locals or memory of its own."""
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
    # Each step assigns the name to another array; the memory of this one stays reachable.
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


class Constancy(Enum):
    """How an axis of a state keeps its length."""

    PROVED = "the steps cannot change it"
    REQUIRED = "a step that changes it is an error, as in JAX"
    ASSUMED = "the program is written anew if a step changes it"
    REFUTED = "the steps change it"


def constancies(emit: Emitter, op: Scan, values: Sequence[Any], k: int) -> list[Constancy]:
    """How each axis of state ``k`` keeps its length, in a loop of ``values``."""
    lengths = {
        Length(v, axis): _length(emit, n)
        for v, value in zip(op.fgraph.inputs[1:], values, strict=True)
        for axis, n in enumerate(getattr(value, "shape", ()))
    }
    starts = [_length(emit, n) for n in getattr(values[k], "shape", ())]
    return [_constancy(op, k, axis, n, lengths.get) for axis, n in enumerate(starts)]


def _constancy(op: Scan, k: int, axis: int, start: DimExpr, outside: Any) -> Constancy:
    dims = body_dims(op)
    is_kept = dims.keeps_its_start(k, axis, start, outside)
    if is_kept:
        return Constancy.PROVED
    if dims.keeps(k, axis) is None:
        return Constancy.REQUIRED
    return Constancy.ASSUMED if is_kept is None else Constancy.REFUTED


def _length(emit: Emitter, n: Dim) -> DimExpr:
    n = emit.scopes.canonical(n)
    return DimExpr(offset=n) if isinstance(n, int) else DimExpr.variable(n)


def with_shape_of(emit: Emitter, state: Any, following: Any, constancy: Sequence[Constancy]) -> Any:
    """Unify the shapes of ``following`` and ``state``, with checks where equality is unknown."""
    if isinstance(state, Rows | Opaque):
        return following
    for n, m, reason in zip(following.shape, state.shape, constancy, strict=True):
        if emit.scopes.same(n, m):
            continue
        check = "kept" if reason is Constancy.REQUIRED else "assumed_kept"
        if isinstance(n, int) and isinstance(m, int):
            if reason is not Constancy.PROVED:
                emit.check(check, n, m)
            return state  # a check has raised
        pair = (n, m) if isinstance(n, Expr) else (m, n)
        if reason is Constancy.PROVED:
            emit.scopes.unify(*pair)
        else:
            emit.equate(check, *pair)
    return following


def is_updated_by_element(op: Scan, k: int) -> bool:
    """Whether each element of the successor of state ``k`` is a function of the element that it replaces.

    The state must have no other reader, and its successor none at all in the step.
    """
    body = op.fgraph
    uses, v = uses_of(body), op.args.states[k]
    while len(uses[v]) == 1:
        client, position = uses[v][0]
        if client is None:
            return bool(position == k and v is not op.args.states[k])
        if not is_elementwise(client) or len(client.outputs) != 1:
            return False
        if client.inputs[position].type.broadcastable != client.outputs[0].type.broadcastable:
            return False
        v = client.outputs[0]
    return False


def step(
    emit: Emitter, pairs: Sequence[tuple[Any, Any]], in_place: Sequence[tuple[Array, Virtual]]
) -> None:
    """Assign all states their successors, simultaneously; overwrite those ``in_place`` by element."""
    names: list[Expr] = []
    expressions: list[Expr] = []
    arrays: list[tuple[Array, Any]] = []
    changed: list[Expr] = []  # lists and generators assigned to a state
    for state, value in pairs:
        if isinstance(state, Small):
            names += list(state.elements.flat)
            expressions += list(emit.in_locals(value, state.shape).elements.flat)
        elif isinstance(state, Rows):  # no assignment, where it was appended to in place
            names += [state.name, state.count]
            expressions += [value.name, value.count]
        elif isinstance(state, Opaque):
            names.append(state.name)
            expressions.append(opaque.changeable(emit, opaque.as_list(emit, value), changed).name)
        elif emit.is_room(state):
            arrays.append((state, value))
        elif value != state:  # the shape may change: a new array at each step
            own = isinstance(value, Array) and value.fresh and not emit.is_room(value)
            names.append(state.name)
            expressions.append((value if own else emit.fresh(value, reuse=False)).name)
    kept, copies = _copied(emit, arrays)
    new_names, later = _exchanged(emit, kept)
    changing = emit.scopes.changing  # reassigned before the element is written
    written = [
        (state.name, at, emit.temp(element) if element in changing else element)
        for state, value in later
        for at, element in np.ndenumerate(value.elements)
    ]
    for array, elements in in_place:  # while the names of the others still are states of this step
        emit.copy(elements, array.name)
    emit.assign([*names, *new_names], [*expressions, *new_names.values()])
    for state, successor in copies:
        emit.copy(successor, state.name)
    for name, at, element in written:
        emit.set(name[at], element)


def _copied(
    emit: Emitter, arrays: Sequence[tuple[Array, Any]]
) -> tuple[list[tuple[Array, Any]], list[tuple[Array, Array]]]:
    """Split ``arrays`` into those that exchange memory and those small enough to copy.

    A copy of a small array takes a nanosecond, or nothing if its elements are in registers; an exchange
    changes the reference counts of both arrays, 10 ns a step, and keeps them off the stack.

    The copies follow the assignment of all other states, so that a successor is copied from memory that
    nothing else uses: not from a view of a state, and not from an array that another state takes over.
    """
    exchanged: list[tuple[Array, Any]] = []
    copied: list[tuple[Array, Any]] = []
    for state, value in arrays:
        is_small = is_static(state.shape) and prod(state.shape) <= _COPIED
        if isinstance(value, Small) or not is_small:
            exchanged.append((state, value))
        elif not (isinstance(value, Array) and value.name == state.name):
            copied.append((state, value))
    in_use = {state.name for state, _ in arrays}
    in_use |= {value.name for _, value in exchanged if isinstance(value, Array)}

    def own(value: Any) -> Array:
        is_apart = isinstance(value, Array) and value.fresh and emit.is_room(value)
        return value if is_apart and value.name not in in_use else emit.fresh(value)

    return exchanged, [(state, own(value)) for state, value in copied]


def _exchanged(
    emit: Emitter, arrays: Sequence[tuple[Array, Any]]
) -> tuple[dict[Expr, Expr], list[tuple[Array, Small]]]:
    """Assign memory to each array; also the states that are then written element by element.

    Names are permuted among the same arrays in memory: the next step writes into the memory of the old
    state.
    """
    kinds: dict[Any, list[tuple[Array, Any]]] = {}  # by shape and dtype
    for state, value in arrays:
        shape = tuple(map(emit.scopes.canonical, state.shape))
        kinds.setdefault((shape, state.dtype), []).append((state, value))
    becomes: dict[Expr, Expr] = {}
    for group in kinds.values():
        becomes |= _permuted(emit, group)
    return becomes, [(s, value) for s, value in arrays if isinstance(value, Small)]


def _permuted(emit: Emitter, arrays: Sequence[tuple[Array, Any]]) -> dict[Expr, Expr]:
    """Assign memory to arrays of one shape."""
    rooms = [state.name for state, _ in arrays]
    becomes: dict[Expr, Expr] = {}
    for state, value in arrays:
        if isinstance(value, Small):
            continue
        own = isinstance(value, Array) and (
            value.fresh and emit.is_room(value) or value.name in rooms
        )
        is_assigned = own and value.name in becomes.values()
        becomes[state.name] = value.name if own and not is_assigned else emit.fresh(value).name
    names = dict.fromkeys([*rooms, *becomes.values()])
    free = [name for name in names if name not in becomes.values()]
    for name in [n for n in free if n not in becomes]:
        becomes[name] = name
        free.remove(name)
    becomes.update(zip([n for n in names if n not in becomes], free, strict=True))
    return becomes


def _keeps_rows(op: Scan, k: int) -> bool:
    """Whether the body only appends to a trace, which then stays in one buffer."""
    out = op.outs.states[k]
    while out.owner is not None and isinstance(out.owner.op, Append):
        out = out.owner.inputs[0]
    return out is op.args.states[k]


def _locals(emit: Emitter, value: Small) -> Small:
    """Assign each element to a local of its dtype, which a literal's type may differ from."""
    elements = value.elements.copy()
    for at, x in np.ndenumerate(value.elements):
        elements[at] = emit.temp(x if value.dtype == "bool" else x.astype(value.dtype), "s")
    return Small(elements, value.dtype)
