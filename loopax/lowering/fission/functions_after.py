"""Functions that feed no state move after the loop, with their readers: see `functions_out`.

    finals, ys = scan(lambda s, r: (g(h(s), r), f(exp(h(s)))), s, x)
    ->
    finals, hs = scan(lambda s, r: (g(h(s), r), h(s)), s, x);  ys = f(exp(hs))

Traces, and states that only add up, leave if they contain a function. The loop then emits their operands:
values that a step computes for its states anyway, ``h(s)`` here, and no more numbers than there are
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.ir.shapes import repeated
from loopax.ir.sizes import Dims
from loopax.lowering.analysis.checked_steps import checked
from loopax.lowering.analysis.open_lengths import KnownLengths
from loopax.lowering.fission.push_out import conditions_of, outside_of
from loopax.lowering.fission.row_wise_body import RowWiseBody, entries, is_function
from loopax.lowering.fission.sums_out import added_term
from loopax.lowering.open_loop import OpenLoop, State, Y


def functions_after(node: Apply, dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    """Map outputs of ``node`` to their replacements, without the functions; empty if none leaves."""
    op: Any = node.op
    conditions = conditions_of(op, node, dims, known)
    if conditions is None or op.options.checkpoint is not None:
        return {}
    loop = OpenLoop.of(node)
    terms = {s: t for s in loop.states if (t := added_term(loop, s)) is not None}
    ports: dict[Any, Any] = {y: y.inner for y in loop.ys} | terms
    args = loop.inner
    inputs = {args.i, *args.rows, *args.consts}
    leave = [port for port, row in ports.items() if any(map(is_function, toposort([row])))]
    while leave:  # terminates: fewer are left after each round
        stay = [s.next for s in loop.states if s not in leave] + [
            y.inner for y in loop.ys if y not in leave
        ]
        feeding = set(toposort(stay))
        own = [n for n in toposort([ports[p] for p in leave]) if n not in feeding]
        cut = _read(own, inputs)
        body = RowWiseBody(args._replace(rows=[*args.rows, *cut]), own, None, True)
        left = [p for p in leave if ports[p] in body and _has_function(ports[p], own)]
        if left == leave:
            break
        leave = left
    if not leave or len(leave) == len(loop.states) + len(loop.ys) or not _pays(own, cut, loop):
        return {}
    n = checked(loop.n_steps, conditions)
    outside = outside_of(args, node, conditions)
    loop.states = [s for s in loop.states if s not in leave]
    emitted = {y.inner: y for y in loop.ys if y not in leave}
    loop.ys = [*emitted.values(), *(Y(v) for v in cut if v not in emitted)]
    loop.drop_unread()
    outs = loop.bind()
    traces = dict(zip([y.inner for y in loop.ys], outs[len(loop.states) :], strict=True))
    rows = body.computed([ports[p] for p in leave], outside | {v: traces[v] for v in cut})
    new = dict(
        zip([*(s.final for s in loop.states), *(y.trace for y in loop.ys)], outs, strict=True)
    )
    new.pop(None, None)
    for port, x in zip(leave, rows, strict=True):
        trace = x if body.varies.get(ports[port], False) else repeated(pt.as_tensor(x), n)
        new |= _output(port, trace)
    return new


def _output(port: State | Y, trace: TensorVariable) -> dict[Any, Any]:
    if isinstance(port, Y):
        return {port.trace: trace}
    return {port.final: port.init + trace.sum(axis=0).astype(port.inner.type.dtype)}


def _read(nodes: Iterable[Apply], known: set[Variable]) -> list[Any]:
    """The variables that ``nodes`` read, but neither compute nor find in ``known``."""
    computed = {v for node in nodes for v in node.outputs}
    read = dict.fromkeys(v for node in nodes for v in node.inputs)
    return [v for v in read if v not in computed | known and not isinstance(v, Constant)]


def _has_function(row: Variable, own: Sequence[Apply]) -> bool:
    return any(is_function(node) for node in toposort([row]) if node in own)


def _pays(own: Sequence[Apply], cut: Sequence[Variable], loop: OpenLoop) -> bool:
    """Whether the functions that leave are at least as many numbers as the loop has to emit for them."""
    if not all(isinstance(v.type, DenseTensorType) for v in cut):
        return False
    emitted = {y.inner for y in loop.ys}
    more = sum(entries(v) for v in cut if v not in emitted)
    return more <= sum(entries(n.outputs[0]) for n in own if is_function(n))
