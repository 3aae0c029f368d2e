"""``Loop`` -> ``while``, ``Cond`` -> ``if``, ``Call`` in line.

Scalars and small arrays are locals that each iteration assigns anew. A buffer, a state that the body
only writes rows into, is one array for the whole loop. Any other state that is an array is a new one
in each iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.typed_list import Append

from loopax.ir import Call, Cond, Loop
from loopax.numba_backend.emitter import Emitter, Site, rule
from loopax.numba_backend.literals import dtype_name
from loopax.numba_backend.rules.lists import copied
from loopax.numba_backend.uses import READS_ONCE, uses_of
from loopax.numba_backend.values import Array, Rows, Small, Value, shared


@rule(Loop)
def loop(site: Site, go: Value, *values: Value) -> Any:
    emit, op = site.emit, site.op
    body = op.fgraph
    writes = _writes(op, emit)
    emit.in_place.update(writes.values())
    variables = body.inputs[: op.n_states]
    states: list[Value] = []
    for k, (v, value) in enumerate(zip(variables, values[: op.n_states], strict=True)):
        if isinstance(value, Small):
            states.append(_locals(emit, value))
        elif isinstance(value, Rows):
            states.append(copied(emit, value))
        else:
            # In C order, and its own: what a step returns is unified with it, or written into it.
            array = emit.fresh(value)
            states.append(array if k in writes else Array(array.name, array.shape, v.type.dtype))
    going = emit.temp(emit.scalar(go), "going")
    with emit.block(f"while {going}:"):
        inner = [
            s if not isinstance(s, Array) or k in writes else emit.array(s.name, v)
            for k, (s, v) in enumerate(zip(states, variables, strict=True))
        ]
        given = [*inner, *map(shared, values[op.n_states :])]
        *following, flag = emit.run(body, given, last=list(writes.values()))
        names, expressions = [going], [emit.scalar(flag)]
        for k, (state, value) in enumerate(zip(states, following, strict=True)):
            if isinstance(state, Small):
                names += list(state.elements.flat)
                expressions += list(emit.in_locals(value).elements.flat)
            elif isinstance(state, Rows):  # nothing, where it was appended to in place
                names += [state.name, state.count]
                expressions += [value.name, value.count]
            elif k not in writes:
                names.append(state.name)
                expressions.append(emit.dense(value).name)
        emit.assign(names, expressions)
    outs = [
        s if not isinstance(s, Array) or k in writes else emit.array(s.name, v)
        for k, (s, v) in enumerate(zip(states, variables, strict=True))
    ]
    return tuple(outs)


def _locals(emit: Emitter, value: Small) -> Small:
    """A local for each element, of the dtype that it keeps: a literal's type would be another."""
    elements = value.elements.copy()
    for at, name in _each(value):
        typed = name if value.dtype == "bool" else f"{dtype_name(value.dtype)}({name})"
        elements[at] = emit.temp(typed, "s")
    return Small(elements, value.dtype)


def _each(value: Small) -> Any:
    return ((at, value.elements[at]) for at in np.ndindex(*value.elements.shape))


def _writes(op: Loop, emit: Emitter) -> dict[int, Apply]:
    """The states that are only written to, with the node that writes: one array for the whole loop.

    The body may read rows of it as well, where a row is small: it is in locals before the write,
    which comes last.
    """
    body, found = op.fgraph, {}
    uses = uses_of(body)
    for k, (v, out) in enumerate(zip(body.inputs[: op.n_states], body.outputs, strict=False)):
        node = out.owner
        if (
            node is None
            or not isinstance(node.op, IncSubtensor | Append)
            or node.inputs[0] is not v
        ):
            continue
        if uses[out] == [(None, k)] and all(
            client is node and position == 0 or client is not None and _reads_rows(client, emit)
            for client, position in uses[v]
        ):
            found[k] = node
    return found


def _reads_rows(client: Apply, emit: Emitter) -> bool:
    shape = getattr(client.outputs[0].type, "shape", (None,))
    small = None not in shape and emit.is_small(shape)
    return isinstance(client.op, Shape | Shape_i) or (isinstance(client.op, Subtensor) and small)


def _read_by_rows(node: Apply, position: int) -> bool:
    """Whether a constant of a loop is only read one row at a step, so that it needs no memory."""
    op = node.op
    inner = op.fgraph.inputs
    k = position - 1
    if k < op.n_states:
        return False
    uses = uses_of(op.fgraph)[inner[k]]
    return len(uses) == 1 and all(
        client is not None and isinstance(client.op, Subtensor) and at == 0 and _is_row(client)
        for client, at in uses
    )


def _is_row(node: Apply) -> bool:
    return node.outputs[0].type.ndim == node.inputs[0].type.ndim - 1


READS_ONCE[Loop] = _read_by_rows


@rule(Call)
def call(site: Site, *values: Value) -> Any:
    return tuple(site.emit.run(site.op.fgraph, [shared(v) for v in values]))


@rule(Cond)
def cond(site: Site, condition: Value, *operands: Value) -> Any:
    emit = site.emit
    outs: list[Variable] = site.node.outputs
    results: list[Value] = []
    for k, (head, branch) in enumerate(
        [(f"if {emit.scalar(condition)}:", site.op.branches[0]), ("else:", site.op.branches[1])]
    ):
        with emit.block(head):
            values = emit.run(branch, [shared(v) for v in operands])
            if k == 0:
                results = [_place(emit, v, value) for v, value in zip(outs, values, strict=True)]
            for place, value in zip(results, values, strict=True):
                if isinstance(place, Small):
                    for at, name in _each(place):
                        emit.line(f"{name} = {emit.in_locals(value, place.shape).elements[at]}")
                else:
                    emit.line(f"{place.name} = {emit.fresh(value).name}")
    return tuple(
        r if isinstance(r, Small) else emit.array(r.name, v, fresh=True)
        for r, v in zip(results, outs, strict=True)
    )


def _place(emit: Emitter, v: Variable, value: Value) -> Value:
    """The locals that both branches assign."""
    if isinstance(value, Small):
        elements = value.elements.copy()
        for at, _ in _each(value):
            elements[at] = emit.source.fresh("y")
        return Small(elements, value.dtype)
    return Array(emit.source.fresh("a"), (), v.type.dtype)
