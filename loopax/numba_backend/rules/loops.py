"""``Loop`` -> ``for``, with a ``break`` where it stops. See `loop_states` for its states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.typed_list import Append

from loopax.ir import Loop
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import FALSE, TRUE, Expr, as_dim, call, literal
from loopax.numba_backend.emit.schedule import chains
from loopax.numba_backend.emit.statements import Break
from loopax.numba_backend.emit.uses import READS_ONCE, uses_of
from loopax.numba_backend.emit.values import Array, Small, Value, Virtual, shared, small
from loopax.numba_backend.rules.loop_states import (
    Constancy,
    constancies,
    is_updated_by_element,
    names,
    started,
    step,
    with_shape_of,
)


@rule(Loop)
def loop(site: Site, n_steps: Value, *values: Value) -> Any:
    assert not site.op.n_seqs and not site.op.n_ys, "scan_to_loop comes before"
    emit, op = site.emit, site.op
    body, n = op.fgraph, op.n_states
    writes, snapshots = _writes(emit, op)
    constancy = [constancies(emit, op, values, k) for k in range(n)]
    # Each steady state has one array, or one local for each element, in all steps.
    may_differ = (
        {Constancy.REFUTED} if emit.keeps_shapes else {Constancy.ASSUMED, Constancy.REFUTED}
    )
    steady = {k for k in range(n) if k in writes or not may_differ & {*constancy[k]}}
    states: list[Any] = [
        started(site, k, value, k in steady, k in writes) for k, value in enumerate(values[:n])
    ]
    count, bound = emit.local("i"), as_dim(emit.scalar(n_steps))
    n_done, stopped = _end_locals(site)
    consts = [shared(emit.apart(v)) for v in values[n:]]
    with emit.frame(count, bound):
        changing = [*names(states), count]
        emit.scopes.define(changing)
        emit.scopes.changing.update(changing)
        index = count
        if op.options.reverse and uses_of(body)[op.args.i]:
            index = emit.number(bound - 1) - count
            if _has_arrays(emit, op):
                index = call("hidden_step", index, bound)
            index = emit.temp(index, "k")
        inner = _with_current_shapes(emit, op, states, steady)
        for state, latency in zip(inner, chains(op), strict=True):
            if isinstance(state, Small):
                emit.ready.update(dict.fromkeys(state.elements.flat, latency))
        arguments = [small(index, "int64"), *inner, *consts]
        # A read at the index needs no check where there are as many rows as steps: LLVM schedules a
        # step that may raise worse (HMM with 4 states: 1.30 to 1.06 of hand-written).
        counted = {op.args.i: bound}
        # The flag comes after the states: LLVM then holds these in registers, and otherwise reloads
        # them from the stack at each step (200 Newton iterations: 1.34 to 1.01 of hand-written).
        flag = body.outputs[n] if op.stops else None
        following = emit.run(
            body, arguments, [*chain(*writes.values())], snapshots, counted=counted, last=flag
        )
        for k in sorted(steady - writes.keys()):
            following[k] = with_shape_of(emit, states[k], following[k], constancy[k])
        stop = emit.temp(emit.scalar(following[n])) if op.stops else None
        in_place = [
            k
            for k in sorted(steady - writes.keys())
            if isinstance(following[k], Virtual)
            and isinstance(states[k], Array)
            and emit.is_room(states[k])
            and is_updated_by_element(op, k)
        ]
        pairs = {k: (states[k], following[k]) for k in range(n) if k not in writes}
        step(emit, [p for k, p in pairs.items() if k not in in_place], [pairs[k] for k in in_place])
        if n_done is not None:
            emit.set(n_done, count + 1)
        if stop is not None:
            with emit.when(stop):
                if stopped is not None:
                    emit.set(stopped, TRUE)
                emit.add(Break())
    emit.scopes.define(names(states))
    outs = _with_current_shapes(emit, op, states, steady)
    if op.stops:
        outs.append(small(literal(0, "int64") if n_done is None else n_done, "int64"))
        outs.append(small(FALSE if stopped is None else stopped, "bool"))
    return tuple(outs)


def _with_current_shapes(
    emit: Emitter, op: Loop, states: Sequence[Any], steady: Collection[int]
) -> list[Any]:
    """Wrap the states, with the current shapes of arrays that are not ``steady``."""
    return [
        emit.array(s.name, v) if isinstance(s, Array) and k not in steady else s
        for k, (s, v) in enumerate(zip(states, op.args.states, strict=True))
    ]


def _end_locals(site: Site) -> tuple[Expr | None, Expr | None]:
    """Locals for the number of steps, and for whether the body stopped, where they have readers."""
    if not site.op.stops:
        return None, None
    starts = ((literal(0, "int64"), "n_done"), (FALSE, "stopped"))
    return tuple(  # type: ignore[return-value]
        site.emit.temp(start, hint) if site.uses[v] else None
        for (start, hint), v in zip(starts, site.node.outputs[-2:], strict=True)
    )


def _writes(emit: Emitter, op: Loop) -> tuple[dict[int, list[Apply]], set[Apply]]:
    """Buffers: states that the body only writes into, mapped to the writing nodes; and the reading nodes.

    The body may read rows of a buffer: they are copied before the writes, which come last, in their order.
    A state whose elements can be locals is not a buffer.
    """
    body = op.fgraph
    writes: dict[int, list[Apply]] = {}
    snapshots: set[Apply] = set()
    uses = uses_of(body)
    for k, (v, out) in enumerate(zip(op.args.states, op.outs.states, strict=True)):
        nodes: list[Apply] = []
        written, reader = out, (None, k)
        while written is not v:
            node = written.owner
            if node is None or not _is_write(node) or uses[written] != [reader]:
                break
            nodes.insert(0, node)
            written, reader = node.inputs[0], (node, 0)
        if not nodes or written is not v or _can_be_locals(emit, nodes):
            continue
        readers = [c for c, position in uses[v] if (c, position) != (nodes[0], 0)]
        if all(c is not None and _reads_part(c) for c in readers):
            writes[k] = nodes
            snapshots.update(c for c in readers if isinstance(c.op, Subtensor))
    return writes, snapshots


def _can_be_locals(emit: Emitter, writes: Sequence[Apply]) -> bool:
    shape = getattr(writes[0].inputs[0].type, "shape", (None,))
    index = [v for node in writes for v in node.inputs[2:]]
    return emit.is_small(shape) and all(isinstance(v, Constant) for v in index)


def _has_arrays(emit: Emitter, op: Loop) -> bool:
    """Whether the body computes arrays in memory, along which it has loops."""
    values = [v for node in op.fgraph.apply_nodes if not _is_write(node) for v in node.outputs]
    return any(hasattr(v.type, "shape") and not emit.is_small(v.type.shape) for v in values)


def _is_write(node: Apply) -> bool:
    return isinstance(node.op, IncSubtensor | Append)


def _reads_part(client: Apply) -> bool:
    """Whether a node reads some rows of an array, which are copied before a write."""
    x = client.inputs[0]
    return isinstance(client.op, Shape | Shape_i) or (
        isinstance(client.op, Subtensor)
        and getattr(client.outputs[0].type, "ndim", 0) < getattr(x.type, "ndim", 0)
        and client.inputs.count(x) == 1
    )


def _read_by_rows(node: Apply, position: int) -> bool:
    """Whether a loop reads a constant only row by row, one a step, so that it needs no memory."""
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
