"""A program that returns what is watched in it: values, and the steps in which they were made.

    scan(step with watch(x, "x"))  ->  scan(step), trace of x, trace of the step's number

What is watched in a loop is one more trace of it, in a loop in a loop a trace of traces, with a row for
each step of all of them. A branch that is not taken has a row of zeros, and a flag that says that it is
none. Where the last rows alone are wanted they are cut from each trace, of which the passes then store no
more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.printing import Print
from pytensor.tensor.type import DenseTensorType

from loopax.base.errors import LoopTypeError, describe
from loopax.base.upstream.pytensor import thaw
from loopax.ir import Call, Cond, Scan
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.watch import Breakpoint, Watch
from loopax.ir.replace import replaced
from loopax.lowering.finiteness.looked_at import prepare
from loopax.lowering.open_loop import OpenLoop, Y, replace_outputs


@dataclass
class Exposed:
    """A watched value: its rows, where there are any, and the steps of each, the outermost loop's first.

    ``name`` is None for the condition of a breakpoint. ``present`` says which rows are some; None: all.
    With ``has_axis`` all have a leading axis for the steps.
    """

    name: str | None
    value: Any
    present: Any = None
    steps: list[Any] = field(default_factory=list)
    has_axis: bool = False

    def flat(self) -> list[Any]:
        return [self.value, *self.steps, *([] if self.present is None else [self.present])]

    def with_flat(self, flat: Sequence[Any], **changed: Any) -> Exposed:
        n = 1 + len(self.steps)
        present = None if self.present is None else flat[n]
        return replace(self, value=flat[0], steps=[*flat[1:n]], present=present, **changed)


def expose(graph: FunctionGraph, last: int | None) -> list[Exposed]:
    """What is watched in ``graph``, imported, in order of computation; then nothing in it is watched.

    The graph is changed in place. With ``last`` no more rows of each need be there.
    """
    prepare(graph)
    nodes = nodes_within(graph.inputs, graph.outputs)
    if any(isinstance(node.op, Breakpoint) for node in nodes):
        last = None  # they are the last ones before that
    return [_rows(item) for item in _of_graph(graph, last)]


def _of_graph(graph: FunctionGraph, last: int | None) -> list[Exposed]:
    found: list[Exposed] = []
    for node in graph.toposort():
        op: Any = node.op
        if isinstance(op, Watch | Print | Breakpoint):
            found.append(_of_identity(node))
            replace_outputs(graph, {node.outputs[0]: node.inputs[0]}, "expose")
            continue
        write = next((w for kind, w in _WRITERS.items() if isinstance(op, kind)), None)
        if write is not None:
            change, items = write(node, last)
            found += items
            replace_outputs(graph, change, "expose")
    return found


def _of_identity(node: Apply) -> Exposed:
    op: Any = node.op
    if isinstance(op, Breakpoint):
        return Exposed(None, node.inputs[1])
    name = op.name if isinstance(op, Watch) else op.message
    value = node.inputs[0]
    if not isinstance(value.type, DenseTensorType):
        raise LoopTypeError(
            f"'{name}' is {describe(value)}: what is watched is a tensor. Watch what is made of it, "
            "watch(x.sum(), 'total') say."
        )
    return Exposed(name, value)


def _of_loop(node: Apply, last: int | None) -> Any:
    loop = OpenLoop.of(node)
    body = FunctionGraph(loop.inner.flat(), loop.outputs(), clone=False)
    items = _of_graph(body, last)
    if not items:
        return {}, []
    loop.set_outputs(body.outputs)
    emitted = [[Y(x) for x in [loop.i, *item.flat()]] for item in items]
    loop.ys += [y for ys in emitted for y in ys]
    change = loop.close()
    found = []
    for item, ys in zip(items, emitted, strict=True):
        i, *rows = [y.new[::-1] if loop.options.reverse else y.new for y in ys]
        step = loop.n_steps - 1 - i if loop.options.reverse else i
        if item.has_axis:  # a row for each step of both
            inner = rows[1]
            step = pt.broadcast_to(step[:, None], inner.shape).flatten()
            rows = [_joined(x) for x in rows]
        rows = [rows[0], step, *rows[1:]]
        item = replace(item, steps=[None, *item.steps]).with_flat(rows, has_axis=True)
        found.append(_cut(item, last))
    return change, found


def _joined(x: Any) -> Any:
    """``x`` with its first two axes as one."""
    shape = [x.shape[k] for k in range(x.type.ndim)]
    return x.reshape((shape[0] * shape[1], *shape[2:]))


def _cut(item: Exposed, last: int | None) -> Exposed:
    """The last rows alone, where all are some."""
    if last is None or item.present is not None or item.name is None:
        return item
    return item.with_flat([x[-last:] for x in item.flat()])


def _of_branches(node: Apply, last: int | None) -> Any:
    op: Any = node.op
    branches = [branch.clone() for branch in op.branches]  # the op keeps its own
    items = [_of_graph(branch, last) for branch in branches]
    if not any(items):
        return {}, []
    operands = [v.type() for v in op.fgraph.inputs]
    all_of_them = [(k, _with_flag(item)) for k in (0, 1) for item in items[k]]
    outs = []
    for k, branch in enumerate(branches):
        new = [*branch.outputs]
        for of, item in all_of_them:
            new += (
                item.flat() if of == k else [_zeros(x, branches[of], branch) for x in item.flat()]
            )
        outs.append(replaced(new, dict(zip(branch.inputs, operands, strict=True))))
    bound = Cond.from_branches(operands, outs[0], outs[1], op.name).bind(
        node.inputs[0], node.inputs[1:]
    )
    rest = iter(bound[op.n_outs :])
    found = [item.with_flat([next(rest) for _ in item.flat()]) for _, item in all_of_them]
    return dict(zip(node.outputs, bound, strict=False)), found


def _with_flag(item: Exposed) -> Exposed:
    if item.present is not None:
        return item
    present = pt.ones(item.value.shape[:1] if item.has_axis else (), dtype="bool")
    return replace(item, present=present)


def _zeros(x: Any, of: FunctionGraph, branch: FunctionGraph) -> Any:
    """Zeros in the place of ``x``, of the graph ``of``, in another ``branch`` of the same inputs."""
    if not x.type.ndim:
        return pt.zeros((), dtype=x.type.dtype)
    shapes = [_shape(v) for v in of.inputs]
    (shape,) = infer_shape([x], of.inputs, shapes)
    same = dict(zip(of.inputs, branch.inputs, strict=True))
    return pt.zeros(replaced(list(shape), same), dtype=x.type.dtype)


def _shape(v: Any) -> Any:
    return tuple(v.shape[k] for k in range(v.type.ndim)) if hasattr(v.type, "ndim") else None


def _of_call(node: Apply, last: int | None) -> Any:
    """Of a call with a pullback of its own, whose signature is fixed, what is watched is one more call."""
    op: Any = node.op
    body = thaw(op.fgraph)
    items = _of_graph(body, last)
    if not items:
        return {}, []
    own = op.rule is not None
    n = 0 if own else len(body.outputs)
    outs = [*body.outputs[:n], *(x for item in items for x in item.flat())]
    new = Call(FunctionGraph(body.inputs, outs, clone=True).freeze(), name=op.name)
    bound = new.make_node(*node.inputs).outputs
    rest = iter(bound[n:])
    found = [item.with_flat([next(rest) for _ in item.flat()]) for item in items]
    if not own:
        return dict(zip(node.outputs, bound, strict=False)), found
    plain = op.with_body(FunctionGraph(body.inputs, body.outputs, clone=True).freeze())
    return dict(zip(node.outputs, plain.make_node(*node.inputs).outputs, strict=True)), found


_WRITERS: dict[Any, Any] = {Scan: _of_loop, Cond: _of_branches, Call: _of_call}


def _rows(item: Exposed) -> Exposed:
    """``item`` with an axis for steps, one row where it is in no loop."""
    if item.has_axis:
        return item
    return item.with_flat([x[None] for x in item.flat()], has_axis=True)
