"""Unread parts leave the loop: finals, traces, states, sequences, constants, operands.

Condition: no output that is read depends on the part, after any number of steps. One analysis covers all
parts: states that only feed one another are removed together, a state that a remaining one reads stays.

An OpFromGraph, or a Call, loses outputs that are unread at every node of that op, with all that only they
needed, so that equal ops stay equal. An op that is more than its graph stays as it is: a subclass, which
has a fixed signature, and an op with derivatives or connections of its own.

Reason: a pullback computes the cotangents of all inputs, and most programs ask for a few.

An op that raises is removed with the last reader of its result, as in PyTensor. So is the check of the
length of an unread sequence: the front end checks it outside, on the number of steps.

In the literature: dead code elimination, through loops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors

from loopax.base.upstream.pytensor import has_own_connections, thaw
from loopax.ir import Call, Cond, Scan
from loopax.lowering.bodies import alternate
from loopax.lowering.open_loop import OpenLoop


def remove_unused(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on the bodies that remain."""
    # A body may have had an input only for an inner loop.
    alternate(graph, _remove, remove_unused)


def _remove(graph: FunctionGraph) -> bool:
    """Shrink the ops of ``graph``, but not inside bodies; return whether anything changed."""
    changed = False
    calls = _calls(graph)
    # From the outputs back: an output that no later loop reads is dropped from the loop before it.
    for node in reversed(graph.toposort()):
        if node not in graph.apply_nodes:
            continue
        # The first of equal calls is reached after the readers of all of them.
        group = calls.get(node)
        new = _smaller_calls(graph, group) if group else _smaller(node, _used(graph, node))
        if new:
            graph.replace_all(list(new.items()), reason="remove_unused")
            changed = True
    return changed


def _used(graph: FunctionGraph, node: Apply) -> list[bool]:
    return [bool(graph.clients.get(v)) for v in node.outputs]


def _smaller(node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    """Map outputs of ``node`` to outputs of a smaller node; empty if all of it is needed."""
    if isinstance(node.op, Scan):
        return _smaller_scan(node.op, node, used)
    if isinstance(node.op, Cond):
        return _smaller_cond(node.op, node, used)
    return {}


def _smaller_scan(op: Scan, node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    outs, inner, flags = op.outs, op.args, op.split_outputs(used)
    ys = [k for k, u in enumerate(flags.traces) if u]
    wanted = [*(outs.ys[k] for k in ys), *([outs.stop] if op.stops else [])]
    finals = [k for k, u in enumerate(flags.finals) if u]
    states, read = _living(inner.states, outs.states, wanted, finals)
    rows = [k for k, v in enumerate(inner.rows) if v in read]
    consts = [k for k, v in enumerate(inner.consts) if v in read]
    kept = (len(ys), len(states), len(rows), len(consts))
    if kept == (op.n_ys, op.n_states, op.n_seqs, op.n_consts):
        return {}
    loop = OpenLoop.of(node)
    loop.ys, loop.states = _at(loop.ys, ys), _at(loop.states, states)
    loop.rows, loop.consts = _at(loop.rows, rows), _at(loop.consts, consts)
    return loop.close()


def _smaller_cond(op: Cond, node: Apply, used: Sequence[bool]) -> dict[Variable, Variable]:
    body: Any = op.fgraph
    n = op.n_outs
    outs = [k for k, u in enumerate(used) if u]
    then, otherwise = _at(body.outputs[:n], outs), _at(body.outputs[n:], outs)
    read = set(ancestors([*then, *otherwise]))
    operands = [k for k, v in enumerate(body.inputs) if v in read]
    if (len(outs), len(operands)) == (n, len(body.inputs)):
        return {}
    body = op.unfrozen()
    then, otherwise = _at(body.outputs[:n], outs), _at(body.outputs[n:], outs)
    new = op.with_branches(_at(body.inputs, operands), then, otherwise)
    bound = new.bind(node.inputs[0], _at(node.inputs[1:], operands))
    return dict(zip(_at(node.outputs, outs), bound, strict=True))


def _calls(graph: FunctionGraph) -> dict[Apply, list[Apply]]:
    """The nodes of each op that is nothing but its graph, keyed by the first of them."""
    groups: dict[Any, list[Apply]] = defaultdict(list)
    if any(isinstance(node.op, OpFromGraph | Call) for node in graph.apply_nodes):
        for node in graph.toposort():
            if _is_its_graph(node.op):
                groups[node.op].append(node)
    return {group[0]: group for group in groups.values()}


def _is_its_graph(op: Op) -> bool:
    if isinstance(op, Call):
        return type(op) is Call and op.rule is None
    return (
        type(op) is OpFromGraph
        and not op.is_inline
        and not op.destroy_map
        and not getattr(op, "shared_inputs", ())
        and op.pullback_overrides is None
        and op.pushforward_overrides is None
        and not has_own_connections(op)
    )


def _smaller_calls(graph: FunctionGraph, group: Sequence[Apply]) -> dict[Variable, Variable]:
    """Smaller calls for all nodes of one op; an output stays if any node needs it."""
    group = [node for node in group if node in graph.apply_nodes]
    op: Any = group[0].op
    body = op.fgraph
    used = [any(uses) for uses in zip(*(_used(graph, node) for node in group), strict=True)]
    outs = [k for k, u in enumerate(used) if u]
    read = set(ancestors(_at(body.outputs, outs)))
    inputs = [k for k, v in enumerate(body.inputs) if v in read]
    if (len(outs), len(inputs)) == (len(body.outputs), len(body.inputs)):
        return {}
    smaller = _smaller_call(op, inputs, outs)
    new: dict[Variable, Variable] = {}
    for node in group:
        results = smaller.make_node(*_at(node.inputs, inputs)).outputs
        new |= zip(_at(node.outputs, outs), results, strict=True)
    return new


def _smaller_call(op: Any, inputs: Sequence[int], outs: Sequence[int]) -> Any:
    body = thaw(op.fgraph, getattr(op, "written", None))  # ops of PyTensor's have no `written`
    kept_inputs, kept_outputs = _at(body.inputs, inputs), _at(body.outputs, outs)
    if isinstance(op, Call):
        return Call.from_graph(FunctionGraph(kept_inputs, kept_outputs, clone=True), name=op.name)
    return OpFromGraph(kept_inputs, kept_outputs, name=op.name, **op.kwargs)


def _living(
    inner: Sequence[Variable],
    nexts: Sequence[Variable],
    wanted: Iterable[Variable],
    finals: Iterable[int],
) -> tuple[list[int], set[Any]]:
    """The states that are live: read after the loop, by ``wanted``, or by the step of a live state.

    The second result holds all variables of the step that they depend on.
    """
    living, seen = set(finals), set()
    number = {v: k for k, v in enumerate(inner)}
    stack = [*wanted, *(nexts[k] for k in living)]
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        stack += [] if v.owner is None else v.owner.inputs
        k = number.get(v)
        if k is not None and k not in living:
            living.add(k)
            stack.append(nexts[k])
    return sorted(living), seen


def _at(xs: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    return [xs[k] for k in positions]
