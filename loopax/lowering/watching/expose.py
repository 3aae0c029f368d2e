"""A program that returns its watched values, and the steps in which they were computed.

    scan(step with watch(x, "x"))  ->  scan(step), trace of x, trace of the step's number

A watched value in a loop becomes an additional trace, in nested loops a trace of traces, with a row for
each step of all of them. A branch that is not taken gives a row of zeros, and a flag that marks it as
absent. Where only the last rows are wanted they are sliced from each trace, and the passes then store no
more. In a loop whose trip count depends on values they are in a state, a buffer that the steps shift.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import Print
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import LoopTypeError, describe
from loopax.ir import Call, Cond, Scan
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.watch import Breakpoint, Watch
from loopax.ir.replace import replaced
from loopax.lowering.bodies import rebranched
from loopax.lowering.finiteness.looked_at import prepare
from loopax.lowering.open_loop import OpenLoop, Y, replace_outputs
from loopax.lowering.watching.exposed import Exposed, read_back
from loopax.lowering.watching.last_rows import last_rows, shape_of


def expose(graph: FunctionGraph, last: int | None) -> list[Exposed]:
    """Remove the marks from the imported ``graph``; return the watched values in order of computation.

    The graph is changed in place. With ``last``, only so many final rows of each value are needed.
    """
    prepare(graph)
    nodes = nodes_within(graph.inputs, graph.outputs)
    if any(isinstance(node.op, Breakpoint) for node in nodes):
        last = None  # the last rows needed are the ones before the breakpoint
    return [item.with_axis() for item in _of_graph(graph, last)]


def _of_graph(
    graph: FunctionGraph, last: int | None, moving: Iterable[Variable] | None = None
) -> list[Exposed]:
    """Watched values of ``graph``; its inputs ``moving`` vary with the steps of an enclosing loop."""
    exposed: list[Exposed] = []
    order = graph.toposort()
    inside = None if moving is None else _following(order, moving)
    for node in order:
        op: Any = node.op
        if isinstance(op, Watch | Print | Breakpoint):
            exposed.append(_of_identity(node))
            replace_outputs(graph, {node.outputs[0]: node.inputs[0]}, "expose")
            continue
        write = next((w for kind, w in _WRITERS.items() if isinstance(op, kind)), None)
        if write is not None:
            change, items = write(node, last, inside)
            exposed += items
            replace_outputs(graph, change, "expose")
    return exposed


def _of_identity(node: Apply) -> Exposed:
    op: Any = node.op
    if isinstance(op, Breakpoint):
        return Exposed(None, node.inputs[1])
    name = op.name if isinstance(op, Watch) else op.message
    value = node.inputs[0]
    if not isinstance(value.type, DenseTensorType):
        raise LoopTypeError(
            f"'{name}' is {describe(value)}: only tensors can be watched. Watch a value computed from "
            "it, for example watch(x.sum(), 'total')."
        )
    return Exposed(name, value)


def _following(order: Sequence[Apply], moving: Iterable[Variable]) -> set[Variable]:
    """The variables that depend on the values of ``moving``, not only on their shapes."""
    following = set(moving)
    for node in order:
        if not isinstance(node.op, Shape | Shape_i) and any(v in following for v in node.inputs):
            following.update(node.outputs)
    return following


def _of_loop(node: Apply, last: int | None, moving: set[Variable] | None) -> Any:
    loop = OpenLoop.of(node)
    body = FunctionGraph(loop.inner.flat(), loop.outputs(), clone=False)
    changing = [*loop.inner.rows, *loop.inner.states]
    fixed = [c.inner for c in loop.consts if moving is not None and c.outer in moving]
    items = _of_graph(body, last, [loop.i, *changing, *fixed])
    if not items:
        return {}, []
    loop.set_outputs(body.outputs)
    if loop.stop is not None or (moving is not None and loop.n_steps in moving):
        if last is not None:
            return last_rows(loop, items, last)
        if moving is not None:
            names = ", ".join(repr(item.name) for item in items if item.name is not None)
            raise LoopTypeError(
                f"{names or 'A breakpoint'} is in a loop whose number of steps changes from step to "
                f"step of the loop around it ({loop.options.origin.line}), so its rows do not form an "
                "array. Watch only the last rows, loopax.watched(f, last=100), without breakpoints, "
                "which need all rows."
            )
    emitted = [[Y(x) for x in [loop.i, *item.flat()]] for item in items]
    loop.ys += [y for ys in emitted for y in ys]
    change = loop.close()
    exposed = []
    for item, ys in zip(items, emitted, strict=True):
        i, *rows = [y.new[::-1] if loop.options.reverse else y.new for y in ys]
        step = loop.n_steps - 1 - i if loop.options.reverse else i
        if item.has_axis:  # one row for each step of both loops
            inner = rows[1]
            step = pt.broadcast_to(step[:, None], inner.shape).flatten()
            rows = [_joined(x) for x in rows]
        rows = [rows[0], step, *rows[1:]]
        item = replace(item, steps=[None, *item.steps]).with_flat(rows, has_axis=True)
        exposed.append(item.cut(last))
    return change, exposed


def _joined(x: TensorVariable) -> Any:
    """Merge the first two axes of ``x``."""
    shape = [x.shape[k] for k in range(x.type.ndim)]
    return x.reshape((shape[0] * shape[1], *shape[2:]))


def _of_branches(node: Apply, last: int | None, moving: set[Variable] | None) -> Any:
    op: Any = node.op
    branches = [branch.clone() for branch in op.branches]  # the op keeps its own
    items = [
        _of_graph(branch, last, _moving_in(branch, node.inputs[1:], moving)) for branch in branches
    ]
    if not any(items):
        return {}, []
    all_of_them = [(k, item.with_present()) for k in (0, 1) for item in items[k]]
    outs = []
    for k, branch in enumerate(branches):
        new = [*branch.outputs]
        for of, item in all_of_them:
            new += (
                item.flat() if of == k else [_zeros(x, branches[of], branch) for x in item.flat()]
            )
        outs.append(new)
    bound = rebranched(node, branches, outs)
    exposed = read_back((item for _, item in all_of_them), bound[op.n_outs :])
    return dict(zip(node.outputs, bound, strict=False)), exposed


def _zeros(x: Variable, of: FunctionGraph, branch: FunctionGraph) -> Any:
    """Zeros in place of ``x``, a variable of graph ``of``, for another ``branch`` with the same inputs."""
    if not x.type.ndim:
        return pt.zeros((), dtype=x.type.dtype)
    shapes = [shape_of(v) for v in of.inputs]
    (shape,) = infer_shape([x], of.inputs, shapes)
    same = dict(zip(of.inputs, branch.inputs, strict=True))
    return pt.zeros(replaced(list(shape), same), dtype=x.type.dtype)


def _moving_in(
    body: FunctionGraph, operands: Sequence[Variable], moving: set[Variable] | None
) -> list[Variable] | None:
    if moving is None:
        return None
    return [v for v, outer in zip(body.inputs, operands, strict=True) if outer in moving]


def _of_call(node: Apply, last: int | None, moving: set[Variable] | None) -> Any:
    """The record of a call with its own pullback: since its signature is fixed, it is one more call."""
    op: Any = node.op
    body = op.unfrozen()
    items = _of_graph(body, last, _moving_in(body, node.inputs, moving))
    if not items:
        return {}, []
    own = op.rule is not None
    n = 0 if own else len(body.outputs)
    outs = [*body.outputs[:n], *(x for item in items for x in item.flat())]
    new = Call.from_graph(FunctionGraph(body.inputs, outs, clone=True), name=op.name)
    bound = new.make_node(*node.inputs).outputs
    exposed = read_back(items, bound[n:])
    if not own:
        return dict(zip(node.outputs, bound, strict=False)), exposed
    plain = op.with_graph(FunctionGraph(body.inputs, body.outputs, clone=True))
    return dict(zip(node.outputs, plain.make_node(*node.inputs).outputs, strict=True)), exposed


_WRITERS: dict[Any, Any] = {Scan: _of_loop, Cond: _of_branches, Call: _of_call}
