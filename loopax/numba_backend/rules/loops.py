"""``Loop`` -> ``for``, left by ``break`` where it stops. `loop_states` holds its states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.typed_list import Append

from loopax.ir import Loop
from loopax.numba_backend.emit.emitter import Emitter, Site, rule
from loopax.numba_backend.emit.expressions import FALSE, TRUE, Expr, as_dim, literal
from loopax.numba_backend.emit.schedule import chains
from loopax.numba_backend.emit.statements import Break
from loopax.numba_backend.emit.uses import READS_ONCE, uses_of
from loopax.numba_backend.emit.values import Array, Small, Value, shared, small
from loopax.numba_backend.rules.loop_states import keeps, names, of_the_same_shape, started, step


@rule(Loop)
def loop(site: Site, n_steps: Value, *values: Value) -> Any:
    assert not site.op.n_seqs and not site.op.n_ys, "scan_to_loop comes before"
    emit, op = site.emit, site.op
    body, n = op.fgraph, op.n_states
    writes, snapshots = _writes(op)
    kept = [keeps(emit, op, values, k) for k in range(n)]
    # For each of these there is one room, or one local for each element, from step to step.
    taken_to = (True, None) if emit.keeps_shapes else (True,)
    steady = {k for k in range(n) if k in writes or all(known in taken_to for known in kept[k])}
    states: list[Any] = [
        started(site, k, value, k in steady, k in writes) for k, value in enumerate(values[:n])
    ]
    count, bound = emit.local("i"), as_dim(emit.scalar(n_steps))
    n_done, stopped = _ended(site)
    consts = [shared(emit.apart(v)) for v in values[n:]]
    with emit.frame(count, bound):
        changing = [*names(states), count]
        emit.scopes.define(changing)
        emit.scopes.changing.update(changing)
        index = count
        if op.options.reverse and uses_of(body)[op.args.i]:
            index = emit.temp(emit.number(bound - 1) - count, "k")
        inner = _of_any_shape(emit, op, states, steady)
        for state, late in zip(inner, chains(op), strict=True):
            if isinstance(state, Small):
                emit.ready.update(dict.fromkeys(state.elements.flat, late))
        given = [small(index, "int64"), *inner, *consts]
        # What is read at the index needs no check where there are as many rows as steps: a step that may
        # raise is scheduled worse (HMM with 4 states: 1.30 to 1.06 of hand-written).
        counted = {op.args.i: bound}
        # The flag comes after the states: LLVM leaves these in registers then, and else reads them from the
        # stack again at each step (200 Newton iterations: 1.34 to 1.01 of hand-written).
        flag = body.outputs[n] if op.stops else None
        following = emit.run(body, given, [*writes.values()], snapshots, counted=counted, last=flag)
        for k in sorted(steady - writes.keys()):
            following[k] = of_the_same_shape(emit, states[k], following[k], kept[k])
        stop = emit.temp(emit.scalar(following[n])) if op.stops else None
        step(emit, [(states[k], following[k]) for k in range(n) if k not in writes])
        if n_done is not None:
            emit.set(n_done, count + 1)
        if stop is not None:
            with emit.when(stop):
                if stopped is not None:
                    emit.set(stopped, TRUE)
                emit.add(Break())
    emit.scopes.define(names(states))
    outs = _of_any_shape(emit, op, states, steady)
    if op.stops:
        outs.append(small(literal(0, "int64") if n_done is None else n_done, "int64"))
        outs.append(small(FALSE if stopped is None else stopped, "bool"))
    return tuple(outs)


def _of_any_shape(
    emit: Emitter, op: Loop, states: Sequence[Any], steady: Collection[int]
) -> list[Any]:
    """The states, where each array that is not ``steady`` has the shape that it has by now."""
    return [
        emit.array(s.name, v) if isinstance(s, Array) and k not in steady else s
        for k, (s, v) in enumerate(zip(states, op.args.states, strict=True))
    ]


def _ended(site: Site) -> tuple[Expr | None, Expr | None]:
    """The locals for how many steps were taken and whether the body stopped them, where it is asked."""
    if not site.op.stops:
        return None, None
    starts = ((literal(0, "int64"), "n_done"), (FALSE, "stopped"))
    return tuple(  # type: ignore[return-value]
        site.emit.temp(start, hint) if site.uses[v] else None
        for (start, hint), v in zip(starts, site.node.outputs[-2:], strict=True)
    )


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
