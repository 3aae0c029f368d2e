"""What nobody reads leaves the loop:  finals, traces, states, sequences, constants, operands.

Condition: no output that is read follows from it, in any number of steps. It is one analysis for all
of them: states that only feed one another go together, a state that a survivor reads stays.

Reason: a pullback computes the cotangents of all inputs, and most programs ask for a few.

An op that raises goes with what it would have been computed for, as it does in PyTensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from loopax.ir import BodyArgs, BodyOuts, Cond, Loop, Scan, ScanArgs
from loopax.ir.compat import thaw
from loopax.lowering.bodies import map_bodies


def remove_unused(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on the bodies that are left."""
    _remove(graph)
    while True:  # ends: each round leaves something less
        map_bodies(graph, remove_unused)
        if not _remove(graph):  # a body may have had an input only for a loop inside of it
            return


def _remove(graph: FunctionGraph) -> bool:
    """Make the ops of ``graph`` smaller, not those in bodies; whether there was anything to do."""
    changed = False
    # From the outputs back: what a loop no longer reads need not be made by the one before it.
    for node in reversed(graph.toposort()):
        if node not in graph.apply_nodes:
            continue
        used = [bool(graph.clients.get(v)) for v in node.outputs]
        new = _smaller(node, used)
        if new:
            graph.replace_all(list(new.items()), reason="remove_unused")
            changed = True
    return changed


def _smaller(node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    """Outputs of ``node`` -> those of a smaller node, or nothing where all of it is needed."""
    if isinstance(node.op, Scan):
        return _smaller_scan(node.op, node, used)
    if isinstance(node.op, Loop):
        return _smaller_loop(node.op, node, used)
    if isinstance(node.op, Cond):
        return _smaller_cond(node.op, node, used)
    return {}


def _smaller_scan(op: Scan, node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    outs, inner, flags = op.outs, op.args, op.split_outputs(used)
    ys = [k for k, u in enumerate(flags.traces) if u]
    wanted = [*(outs.ys[k] for k in ys), *([outs.stop] if op.stops else [])]
    states = _living(
        inner.states, outs.states, wanted, {k for k, u in enumerate(flags.finals) if u}
    )
    read = _read([*(outs.states[k] for k in states), *wanted])
    rows = [k for k, v in enumerate(inner.rows) if v in read]
    consts = [k for k, v in enumerate(inner.consts) if v in read]
    kept = (len(ys), len(states), len(rows), len(consts))
    if kept == (op.n_ys, op.n_states, op.n_seqs, op.n_consts):
        return {}
    body = thaw(op.fgraph)
    inner, outs = op.split_body_inputs(body.inputs), op.split_body_outputs(body.outputs)
    new = Scan.from_body(
        BodyArgs(
            inner.i, _at(inner.rows, rows), _at(inner.states, states), _at(inner.consts, consts)
        ),
        BodyOuts(_at(outs.states, states), _at(outs.ys, ys), outs.stop),
        op.options,
    )
    given = op.split_inputs(node.inputs)
    bound = new.split_outputs(
        new.bind(
            ScanArgs(
                given.n_steps,
                _at(given.sequences, rows),
                _at(given.states, states),
                _at(given.consts, consts),
            )
        )
    )
    before = op.split_outputs(node.outputs)
    pairs = dict(zip(_at(before.finals, states), bound.finals, strict=True))
    pairs |= zip(_at(before.traces, ys), bound.traces, strict=True)
    if op.stops:
        pairs |= {before.n_done: bound.n_done, before.stopped: bound.stopped}
    return pairs


def _smaller_loop(op: Loop, node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    body: Any = op.fgraph
    n = op.n_states
    inner, (*nexts, go) = body.inputs[:n], body.outputs
    states = _living(inner, nexts, [go], {k for k, u in enumerate(used) if u})
    read = _read([*_at(nexts, states), go])
    consts = [k for k, v in enumerate(body.inputs[n:]) if v in read]
    if (len(states), len(consts)) == (n, len(body.inputs) - n):
        return {}
    body = thaw(op.fgraph)
    inner, (*nexts, go) = body.inputs[:n], body.outputs
    new = Loop.from_body(
        _at(inner, states), _at(body.inputs[n:], consts), _at(nexts, states), go, op.name
    )
    given = node.inputs[1:]
    bound = new.bind(node.inputs[0], _at(given[:n], states), _at(given[n:], consts))
    return dict(zip(_at(node.outputs, states), bound, strict=True))


def _smaller_cond(op: Cond, node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    body: Any = op.fgraph
    n = op.n_outs
    outs = [k for k, u in enumerate(used) if u]
    then, otherwise = _at(body.outputs[:n], outs), _at(body.outputs[n:], outs)
    read = _read([*then, *otherwise])
    operands = [k for k, v in enumerate(body.inputs) if v in read]
    if (len(outs), len(operands)) == (n, len(body.inputs)):
        return {}
    body = thaw(op.fgraph)
    then, otherwise = _at(body.outputs[:n], outs), _at(body.outputs[n:], outs)
    new = Cond.from_branches(_at(body.inputs, operands), then, otherwise, op.name)
    bound = new.bind(node.inputs[0], _at(node.inputs[1:], operands))
    return dict(zip(_at(node.outputs, outs), bound, strict=True))


def _living(inner: Any, nexts: Any, wanted: list[Any], living: set[int]) -> list[int]:
    """The states that are read after the loop, by ``wanted``, or by the step of one that lives."""
    while True:  # ends: it only grows
        read = _read([*wanted, *(nexts[k] for k in living)])
        more = {k for k, v in enumerate(inner) if v in read} - living
        if not more:
            return sorted(living)
        living |= more


def _read(outputs: Sequence[Any]) -> set[Any]:
    return set(ancestors(outputs))


def _at(xs: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    return [xs[k] for k in positions]
