"""``Loop`` -> ``for``, left by ``break`` where it stops. `loop_states` holds its states."""

from __future__ import annotations

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
from loopax.numba_backend.rules.loop_states import (
    keeps,
    names,
    of_the_same_shape,
    started,
    step,
)


@rule(Loop)
def loop(site: Site, n_steps: Value, *values: Value) -> Any:
    assert not site.op.n_seqs and not site.op.n_ys, "scan_to_loop comes before"
    emit, op = site.emit, site.op
    body, n = op.fgraph, op.n_states
    writes, snapshots = _writes(op)
    variables = op.args.states
    kept = [keeps(emit, op, values, k) for k in range(n)]
    # For each of these there is one room, or one local for each element, from step to step.
    taken_to = (True, None) if emit.keeps_shapes else (True,)
    steady = {k for k in range(n) if k in writes or all(known in taken_to for known in kept[k])}
    states: list[Any] = [
        started(site, k, value, k in steady, k in writes) for k, value in enumerate(values[:n])
    ]
    count, bound = emit.source.fresh("i"), as_dim(emit.scalar(n_steps))
    ended = _ended(site)
    consts = [shared(emit.apart(v)) for v in values[n:]]
    with emit.frame(f"for {count} in range({bound}):", f"{bound} > 0"):
        changing = [*names(states), count]
        emit.scopes.define(changing)
        emit.scopes.changing.update(changing)
        index = count
        if op.options.reverse and uses_of(body)[op.args.i]:
            last = bound - 1 if isinstance(bound, int) else emit.number(f"{bound} - 1")
            index = emit.temp(f"{last} - {count}", "k")
        inner = [
            emit.array(s.name, v) if isinstance(s, Array) and k not in steady else s
            for k, (s, v) in enumerate(zip(states, variables, strict=True))
        ]
        for state, late in zip(inner, chains(op), strict=True):
            if isinstance(state, Small):
                emit.ready.update(dict.fromkeys(state.elements.flat, late))
        given = [small(index, "int64"), *inner, *consts]
        # What is read at the index needs no check where there are as many rows as steps: a step that may
        # raise is scheduled worse (HMM with 4 states: 1.30 to 1.06 of hand-written).
        counted = {op.args.i: bound}
        following = emit.run(body, given, [*writes.values()], snapshots, counted=counted)
        for k in sorted(steady - writes.keys()):
            following[k] = of_the_same_shape(emit, states[k], following[k], kept[k])
        stop = emit.temp(emit.scalar(following[n])) if op.stops else None
        step(emit, [(states[k], following[k]) for k in range(n) if k not in writes])
        if n_done := ended.get("n_done"):
            emit.line(f"{n_done} = {count} + 1")
        if stop is not None:
            with emit.block(f"if {stop}:"):
                if stopped := ended.get("stopped"):
                    emit.line(f"{stopped} = True")
                emit.line("break")
    emit.scopes.define(names(states))
    outs = [
        emit.array(s.name, v) if isinstance(s, Array) and k not in steady else s
        for k, (s, v) in enumerate(zip(states, variables, strict=True))
    ]
    if op.stops:
        outs.append(small(ended.get("n_done", "0"), "int64"))
        outs.append(small(ended.get("stopped", "False"), "bool"))
    return tuple(outs)


def _ended(site: Site) -> dict[str, str]:
    """The locals for how many steps were taken and whether the body stopped them, where it is asked."""
    if not site.op.stops:
        return {}
    starts = zip(("n_done", "stopped"), ("0", "False"), site.node.outputs[-2:], strict=True)
    return {name: site.emit.temp(start, name) for name, start, v in starts if site.uses[v]}


def _writes(op: Loop) -> tuple[dict[int, Apply], set[Apply]]:
    """The states that are only written to, with the node that writes: one array for the whole loop.

    The body may read rows of it as well: they are copied before the write, which comes last. The nodes
    that do are returned too.
    """
    body = op.fgraph
    found: dict[int, Apply] = {}
    snapshots: set[Apply] = set()
    uses = uses_of(body)
    for k, (v, out) in enumerate(zip(op.args.states, op.outs.states, strict=True)):
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
    op: Any = node.op
    v = op.fgraph.inputs[position]
    if v not in op.args.consts:
        return False
    uses = uses_of(op.fgraph)[v]
    return len(uses) == 1 and all(
        client is not None and isinstance(client.op, Subtensor) and at == 0 and _is_row(client)
        for client, at in uses
    )


def _is_row(node: Apply) -> bool:
    return node.outputs[0].type.ndim == node.inputs[0].type.ndim - 1


READS_ONCE[Loop] = _read_by_rows
