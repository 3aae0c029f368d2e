"""Add an output, a flag: whether any state, row of a trace or output is not finite.

    y = f(x)  ->  y, any state, row or output of it is nan or infinite

Where a nonfinite value makes an output, or a final state, nonfinite too, only that one is checked
(`passing`): in a loop of arithmetic this is one number for each state, and the steps stay as they were.
Values that may become finite again are checked in each step, and a state of the loop remembers the result.

Another program, `locate`, finds the value and its step; it runs only when the flag is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from loopax.ir import Call, Cond, Scan
from loopax.ir.ops.calling_convention import FLAG_TYPE
from loopax.lowering.bodies import rebranched
from loopax.lowering.finiteness.looked_at import any_infinite, prepare, values_of
from loopax.lowering.finiteness.passing import closure, may_be_infinite, passed_on
from loopax.lowering.open_loop import OpenLoop, State, replace_outputs

_NO = pt.constant(np.bool_(False))


def add_flag(graph: FunctionGraph) -> None:
    """Add the flag for all values of the imported ``graph`` as one more output, a bool scalar."""
    prepare(graph)
    outputs = [v for v in dict.fromkeys(graph.outputs) if may_be_infinite(v)]
    traces = [v for v in outputs if _is_trace(v)]
    whole = [v for v in outputs if v not in traces]
    graph.add_output(_either([*map(any_infinite, whole), *_flags(graph, whole)]))


def _flags(graph: FunctionGraph, seen: Iterable[Variable]) -> list[Any]:
    """Add flags inside the ops of ``graph``, in place, and return them; ``seen`` are already checked."""
    order = graph.toposort()
    looked_at = _seen(order, seen)
    flags = []
    for node in order:
        write = next((w for kind, w in _WRITERS.items() if isinstance(node.op, kind)), None)
        if write is not None:
            change, flags_there = write(graph, node, looked_at)
            flags += flags_there
            replace_outputs(graph, change, "add_flag")
            looked_at.update(new for old, new in change.items() if old in looked_at)
    return flags


def _seen(order: Sequence[Apply], seen: Iterable[Variable]) -> set[Variable]:
    """Extend ``seen`` to the values that it implies, through operations and final states of loops."""
    values = set(seen)
    for node in reversed(order):
        if isinstance(node.op, Scan):
            loop = OpenLoop.on(node, node.op.fgraph)
            nodes = node.op.fgraph.toposort()
            values.update(s.init for s in _lasting(loop, nodes) if s.final in values)
        elif len(node.outputs) == 1 and node.outputs[0] in values:
            values.update(passed_on(node))
    return values


def _lasting(loop: OpenLoop, nodes: Sequence[Apply]) -> list[State]:
    """The states whose final value is nonfinite if any earlier one was."""
    return [s for s in loop.states if s.inner in closure([s.next], nodes)]


def _of_loop(graph: FunctionGraph, node: Apply, seen: set[Variable]) -> Any:
    loop = OpenLoop.of(node)
    body = FunctionGraph(loop.inner.flat(), loop.outputs(), clone=False)
    nodes = body.toposort()
    lasting = _lasting(loop, nodes)
    covered = closure([y.inner for y in loop.ys if y.trace in seen], nodes)
    covered |= closure([s.next for s in lasting if s.final in seen], nodes)
    values = [v for v in values_of(graph, loop) if v not in covered]
    outside = []
    for s in lasting:
        reached = closure([s.next], nodes)
        if any(v in reached for v in values):
            outside.append(s.final)
            covered |= reached
            values = [v for v in values if v not in reached]
    returned = {y.inner: y.trace for y in loop.ys if y.trace in graph.outputs}
    outside += [returned[v] for v in values if v in returned]
    inside = [any_infinite(v) for v in values if v not in returned]
    inside += _flags(body, covered)
    if not inside:
        return {}, [any_infinite(v) for v in outside]
    loop.set_outputs(body.outputs)
    before = FLAG_TYPE()
    flag = State(before, _NO, pt.or_(before, _either(inside)))
    loop.states.append(flag)
    loop.options = loop.options._replace(parallel=None)  # which supports no flags as states
    change = loop.close()
    return change, [*(any_infinite(change[v]) for v in outside), flag.new]


def _of_branches(graph: FunctionGraph, node: Apply, seen: set[Variable]) -> Any:
    op: Any = node.op
    branches = [branch.clone() for branch in op.branches]  # the op keeps its own
    flags = [_flags(branch, _seen_in(node, branch, seen)) for branch in branches]
    if not any(flags):
        return {}, []
    outs = [[*b.outputs, _either(f)] for b, f in zip(branches, flags, strict=True)]
    new = rebranched(node, branches, outs)
    return dict(zip(node.outputs, new, strict=False)), new[-1:]


def _of_call(graph: FunctionGraph, node: Apply, seen: set[Variable]) -> Any:
    """The flag of a call with its own pullback: since its signature is fixed, the flag is one more call."""
    op: Any = node.op
    body = op.unfrozen()
    flags = _flags(body, _seen_in(node, body, seen))
    if not flags:
        return {}, []
    outs = [*(body.outputs if op.rule is None else ()), _either(flags)]
    call = Call.from_graph(FunctionGraph(body.inputs, outs, clone=True), name=op.name)
    new = call.make_node(*node.inputs).outputs
    return dict(zip(node.outputs, new, strict=False)) if op.rule is None else {}, new[-1:]


_WRITERS: dict[Any, Any] = {Scan: _of_loop, Cond: _of_branches, Call: _of_call}


def _seen_in(node: Apply, body: FunctionGraph, seen: set[Variable]) -> list[Variable]:
    return [v for v, out in zip(body.outputs, node.outputs, strict=True) if out in seen]


def _either(flags: Sequence[Variable]) -> Any:
    return reduce(pt.or_, flags) if flags else _NO


def _is_trace(v: Variable) -> bool:
    op: Any = v.owner and v.owner.op
    return isinstance(op, Scan) and v.owner.outputs.index(v) >= op.n_states
