"""``Cond`` -> ``if``, ``Call`` in line."""

from __future__ import annotations

from typing import Any

import numpy as np

from loopax.ir import Call, Cond
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Expr
from loopax.numba_backend.emit.statements import Block
from loopax.numba_backend.emit.values import Array, Opaque, Rows, Small, Value


@rule(Call)
def call(site: Site, *values: Value) -> Any:
    given = [site.lent(k, value) for k, value in enumerate(values)]
    return tuple(site.emit.run(site.op.fgraph, given))


@rule(Cond)
def cond(site: Site, condition: Value, *operands: Value) -> Any:
    """Both branches; then, at the end of each, what fills the results: now their shapes are known."""
    emit = site.emit
    rooms = emit.place()  # arrays that both branches fill
    scopes = emit.branches(emit.scalar(condition))
    values, results = [], []
    for scope, branch in zip(scopes, site.op.branches, strict=True):
        with emit.inside(scope):
            values.append(emit.run(branch, [site.lent(k + 1, v) for k, v in enumerate(operands)]))
            if len(values) == 2:
                results = [_place(emit, a, b, rooms) for a, b in zip(*values, strict=True)]
    for scope, found in zip(scopes, values, strict=True):
        taken: list[Expr] = []  # lists and generators that are a result
        with emit.inside(scope):
            for place, value in zip(results, found, strict=True):
                _fill(emit, place, value, taken)
    return tuple(
        emit.array(r.name, v, fresh=True) if isinstance(r, Array) and None in r.shape else r
        for r, v in zip(results, site.node.outputs, strict=True)
    )


def _place(emit: Emitter, one: Any, other: Any, rooms: Block) -> Any:
    """What both branches assign: locals, a room, or the name of an array of any shape."""
    if isinstance(one, Rows) and isinstance(other, Rows):
        return Rows(emit.local("rows"), emit.local("n"), one.ndim, one.dtype)
    if isinstance(one, Rows | Opaque):
        return Opaque(emit.local("held"), fresh=True)
    is_one_shape = emit.scopes.same_shape(one.shape, other.shape)
    if is_one_shape and isinstance(one, Small):
        return emit.new_locals(one.shape, one.dtype, "y")
    if is_one_shape and emit.scopes.outside(one.shape):
        return Array(emit.room(one.shape, one.dtype, rooms), one.shape, one.dtype, fresh=True)
    return Array(emit.local("a"), (None,) * len(one.shape), one.dtype)  # type: ignore[arg-type]


def _fill(emit: Emitter, place: Any, value: Any, taken: list[Expr]) -> None:
    if isinstance(place, Opaque):
        emit.set(place.name, opaque.changeable(emit, opaque.as_list(emit, value), taken).name)
    elif isinstance(place, Rows):
        emit.set(place.name, value.name)
        emit.set(place.count, value.count)
    elif isinstance(place, Small):
        given = emit.in_locals(value, place.shape).elements
        for at in np.ndindex(*place.shape):
            emit.set(place.elements[at], given[at])
    elif None in place.shape:
        emit.set(place.name, emit.fresh(value, reuse=False).name)
    else:
        emit.copy(value, place.name)
