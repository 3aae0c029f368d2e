"""``Cond`` -> ``if``, and ``Call`` inlined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from loopax.ir import Call, Cond
from loopax.numba_backend.emit import opaque
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import Expr
from loopax.numba_backend.emit.statements import Block
from loopax.numba_backend.emit.tree_passes.stack_arrays import is_short_array
from loopax.numba_backend.emit.values import (
    Array,
    EmittedValue,
    Opaque,
    Rows,
    Small,
    Value,
    indices_of,
)


@rule(Call)
def call(site: Site, *values: Value) -> Any:
    arguments = [site.lent(k, value) for k, value in enumerate(values)]
    return site.results(site.op.fgraph, arguments)


@rule(Cond)
def cond(site: Site, condition: Value, *operands: Value) -> Any:
    """Emit both branches, each followed by assignments to results of their common shape."""
    emit = site.emit
    rooms = emit.place()  # arrays that both branches fill
    scopes = emit.branches(emit.scalar(condition))
    values, results = [], []
    for k, (scope, branch) in enumerate(zip(scopes, site.op.branches, strict=True)):
        is_rare = k == 1 and site.op.is_likely
        with emit.inside(scope), emit.in_few_lines() if is_rare else nullcontext():
            values.append(emit.run(branch, [site.lent(at, v) for at, v in enumerate(operands, 1)]))
            if len(values) == 2:
                own = _own_arrays(emit, *values)
                results = [_place(emit, a, b, rooms, own) for a, b in zip(*values, strict=True)]
    for scope, branch_values in zip(scopes, values, strict=True):
        changed: list[Expr] = []  # lists and generators among the results
        with emit.inside(scope):
            for place, value in zip(results, branch_values, strict=True):
                _fill(emit, place, value, changed)
    return tuple(
        emit.array(r.name, v, fresh=True) if isinstance(r, Array) and None in r.shape else r
        for r, v in zip(results, site.node.outputs, strict=True)
    )


def _own_arrays(emit: Emitter, *branches: Sequence[EmittedValue]) -> set[Expr]:
    """The arrays that a result may be, not a copy of one: those that one result of a branch is alone.

    None in a loop, where steps use their arrays again, and none for which the stack has room.
    """
    if emit.scopes.depth > 0:
        return set()
    names = Counter(
        v.name
        for values in branches
        for v in values
        if isinstance(v, Array) and v.fresh and v.compact and not is_short_array(v.shape, v.dtype)
    )
    return {name for name, n in names.items() if n == 1}


def _place(emit: Emitter, first: EmittedValue, second: Any, rooms: Block, own: set[Expr]) -> Any:
    """The target of both branches: locals, an array, or the name of an array of any shape."""
    if isinstance(first, Rows) and isinstance(second, Rows):
        return Rows(emit.local("rows"), emit.local("n"), first.ndim, first.dtype)
    if isinstance(first, Rows | Opaque):
        return Opaque(emit.local("held"), fresh=True)
    is_one_shape = emit.scopes.same_shape(first.shape, second.shape)
    if is_one_shape and isinstance(first, Small):
        return emit.new_locals(first.shape, first.dtype, "y")
    shape = tuple(map(emit.scopes.canonical, first.shape))
    if is_one_shape and emit.scopes.outside(shape):
        if all(isinstance(v, Array) and v.name in own for v in (first, second)):
            return Array(emit.local("a"), shape, first.dtype, fresh=True, compact=True)
        return Array(emit.empty(shape, first.dtype, place=rooms), shape, first.dtype, fresh=True)
    return Array(emit.local("a"), (None,) * len(first.shape), first.dtype)  # type: ignore[arg-type]


def _fill(emit: Emitter, place: Any, value: Any, changed: list[Expr]) -> None:
    if isinstance(place, Opaque):
        emit.set(place.name, opaque.changeable(emit, opaque.as_list(emit, value), changed).name)
    elif isinstance(place, Rows):
        emit.set(place.name, value.name)
        emit.set(place.count, value.count)
    elif isinstance(place, Small):
        elements = emit.in_locals(value, place.shape).elements
        for at in indices_of(place.shape):
            emit.set(place.elements[at], elements[at])
    elif place.compact:
        emit.set(place.name, value.name)
    elif None in place.shape:
        emit.set(place.name, emit.fresh(value, reuse=False).name)
    else:
        emit.copy(value, place.name)
