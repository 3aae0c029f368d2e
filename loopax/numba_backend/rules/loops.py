"""``Loop`` -> ``for``, or ``while`` where it does not count its steps. `loop_states` holds its states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.typed_list import Append

from loopax.ir import Loop
from loopax.numba_backend.emit.emitter import Site, rule
from loopax.numba_backend.emit.literals import as_dim
from loopax.numba_backend.emit.schedule import chains
from loopax.numba_backend.emit.uses import READS_ONCE, uses_of
from loopax.numba_backend.emit.values import Array, Small, Value, shared, small
from loopax.numba_backend.rules.counted import Counter
from loopax.numba_backend.rules.loop_states import keeps_shape, names, started, step


@rule(Loop)
def loop(site: Site, go: Value, *values: Value) -> Any:
    # A state has the shape that it starts with, until the body has shown that it changes it.
    steady = set(range(site.op.n_states))
    while True:
        mark = site.emit.mark()
        outs, changed = _emitted(site, go, values, steady)
        if not changed:
            return outs
        steady -= changed
        site.emit.reset(mark)


def _emitted(
    site: Site, go: Value, values: Sequence[Value], steady: set[int]
) -> tuple[Any, set[int]]:
    """The final states, and which of the ``steady`` ones change their shape, so that it is wrong."""
    emit, op = site.emit, site.op
    body, n = op.fgraph, op.n_states
    writes, snapshots = _writes(op)
    variables = body.inputs[:n]
    counter = Counter.of(site.node)
    states: list[Any] = [
        None
        if counter is not None and k == counter.state
        else started(site, k, value, k in steady or k in writes, k in writes)
        for k, value in enumerate(values[:n])
    ]
    if counter is None:
        going = emit.temp(emit.scalar(go), "going")
        head = f"while {going}:"
        wanted = body.outputs
    else:
        count, bound = emit.source.fresh("i"), as_dim(emit.scalar(values[counter.bound]))
        states[counter.state] = small(count, "int64")
        done = emit.temp("0", "done") if site.uses[site.node.outputs[counter.state]] else None
        going, head = f"{bound} > 0", f"for {count} in range({bound}):"
        wanted = [v for k, v in enumerate(body.outputs[:n]) if k != counter.state] + counter.others
    kept = steady | {*writes}
    with emit.frame(head, going):
        changing = names(states) + ([] if counter else [going])
        emit.scopes.define(changing)
        emit.scopes.changing.update(changing)
        inner = [
            emit.array(s.name, v) if isinstance(s, Array) and k not in kept else s
            for k, (s, v) in enumerate(zip(states, variables, strict=True))
        ]
        for state, late in zip(inner, chains(body, n), strict=True):
            if isinstance(state, Small):
                emit.ready.update(dict.fromkeys(state.elements.flat, late))
        given = [*inner, *map(shared, values[n:])]
        counted = {} if counter is None else dict.fromkeys(counter.indices, bound)
        found = emit.run(body, given, [*writes.values()], snapshots, wanted, counted)
        following = found[: n - 1 if counter else n]
        if counter is not None:
            following.insert(counter.state, states[counter.state])
        changed = {k for k in steady if not keeps_shape(emit, states[k], following[k])}
        if not changed:
            rest = [k for k in range(n) if k not in writes]
            flags = [emit.scalar(v) for v in found[n - 1 if counter else n :]]
            if counter is None:
                step(emit, [(states[k], following[k]) for k in rest], {going: flags[0]})
            else:
                goes_on = emit.temp(" and ".join(flags)) if flags else None
                step(emit, [(states[k], following[k]) for k in rest], {})
                if done is not None:
                    emit.line(f"{done} = {count} + 1")
                if goes_on is not None:
                    with emit.block(f"if not {goes_on}:"):
                        emit.line("break")
    if counter is not None and done is not None:
        states[counter.state] = small(done, "int64")
    emit.scopes.define(names(states))
    outs = [
        emit.array(s.name, v) if isinstance(s, Array) and k not in kept else s
        for k, (s, v) in enumerate(zip(states, variables, strict=True))
    ]
    return tuple(outs), changed


def _writes(op: Loop) -> tuple[dict[int, Apply], set[Apply]]:
    """The states that are only written to, with the node that writes: one array for the whole loop.

    The body may read rows of it as well: they are copied before the write, which comes last. The nodes
    that do are returned too.
    """
    body = op.fgraph
    found: dict[int, Apply] = {}
    snapshots: set[Apply] = set()
    uses = uses_of(body)
    for k, (v, out) in enumerate(zip(body.inputs[: op.n_states], body.outputs, strict=False)):
        node = out.owner
        if (
            node is None
            or not isinstance(node.op, IncSubtensor | Append)
            or node.inputs[0] is not v
        ):
            continue
        readers = [c for c, position in uses[v] if (c, position) != (node, 0)]
        if uses[out] == [(None, k)] and all(c is not None and _reads_part(c) for c in readers):
            found[k] = node
            snapshots.update(c for c in readers if isinstance(c.op, Subtensor))
    return found, snapshots


def _reads_part(client: Apply) -> bool:
    """Whether a node reads some rows of an array, which are copied before others are written."""
    x = client.inputs[0]
    return isinstance(client.op, Shape | Shape_i) or (
        isinstance(client.op, Subtensor)
        and getattr(client.outputs[0].type, "ndim", 0) < getattr(x.type, "ndim", 0)
        and client.inputs.count(x) == 1
    )


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
