"""A program that returns its watched values, and the steps in which they were computed.

    scan(step with watch(x, "x"))  ->  scan(step), trace of x, trace of the step's number

What is watched in a loop is one more trace of it, in a loop in a loop a trace of traces, with a row for
each step of all of them. A branch that is not taken has a row of zeros, and a flag that says that it is
none. Where the last rows alone are wanted they are cut from each trace, of which the passes then store no
more. Of a loop whose number of steps follows from values they are in a state, a buffer that steps move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.printing import Print
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType, TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import LoopTypeError, describe
from loopax.ir import Call, Cond, Scan
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.watch import Breakpoint, Watch
from loopax.ir.replace import replaced
from loopax.lowering.finiteness.looked_at import prepare
from loopax.lowering.open_loop import OpenLoop, State, Y, replace_outputs


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

    def with_flat(self, flat: Sequence[Variable], **changed: Any) -> Exposed:
        n = 1 + len(self.steps)
        present = None if self.present is None else flat[n]
        return replace(self, value=flat[0], steps=[*flat[1:n]], present=present, **changed)


def expose(graph: FunctionGraph, last: int | None) -> list[Exposed]:
    """Watched values of ``graph``, imported, in order of computation; then nothing in it is watched.

    The graph is changed in place. With ``last`` no more rows of each need be there.
    """
    prepare(graph)
    nodes = nodes_within(graph.inputs, graph.outputs)
    if any(isinstance(node.op, Breakpoint) for node in nodes):
        last = None  # they are the last ones before that
    return [_rows(item) for item in _of_graph(graph, last)]


def _of_graph(
    graph: FunctionGraph, last: int | None, moving: Iterable[Variable] | None = None
) -> list[Exposed]:
    """Watched values of ``graph``, of whose inputs ``moving`` change by step of a loop around it."""
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
    """The variables whose values follow from those of ``moving``, and not from their shapes alone."""
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
            return _in_buffers(loop, items, last)
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
        if item.has_axis:  # a row for each step of both
            inner = rows[1]
            step = pt.broadcast_to(step[:, None], inner.shape).flatten()
            rows = [_joined(x) for x in rows]
        rows = [rows[0], step, *rows[1:]]
        item = replace(item, steps=[None, *item.steps]).with_flat(rows, has_axis=True)
        exposed.append(_cut(item, last))
    return change, exposed


def _in_buffers(loop: OpenLoop, items: Sequence[Exposed], last: int) -> Any:
    """The last rows of a loop that may take fewer steps than there are rows to be."""
    buffers = []
    for item in items:
        rows = [x if item.has_axis else x[None] for x in item.flat()]
        m = rows[0].shape[0]
        step = pt.broadcast_to(loop.i, (m,))
        n = 1 + len(item.steps)
        present = rows[n] if item.present is not None else pt.ones((m,), dtype="bool")
        buffers.append([_buffer(loop, x, last) for x in (rows[0], step, *rows[1:n], present)])
    loop.states += [s for states in buffers for s in states]
    loop.options = loop.options._replace(parallel=None)  # which takes floats for states
    change = loop.close()
    exposed = []
    for item, states in zip(items, buffers, strict=True):
        value, step, *fields = [s.new for s in states]
        if loop.options.reverse:
            step = loop.n_steps - 1 - step
        new = replace(item, steps=[None, *item.steps], present=fields[-1], has_axis=True)
        exposed.append(new.with_flat([value, step, *fields]))
    return change, exposed


def _buffer(loop: OpenLoop, rows: Variable, last: int) -> State:
    """A state of the ``last`` rows: each step adds ``rows`` at its end."""
    static = rows.type.shape[1:]
    before = TensorType(rows.type.dtype, (last, *static))()
    both = pt.concatenate([before, rows])
    after = pt.specify_shape(both[-last:], (last, *static))
    init = pt.zeros((last, *_shape_before(loop, rows)), dtype=rows.type.dtype)
    return State(before, before.type.filter_variable(init), before.type.filter_variable(after))


def _shape_before(loop: OpenLoop, rows: Variable) -> list[Any]:
    """The shape of one of ``rows``, which a step makes, outside of the loop."""
    static = rows.type.shape[1:]
    if None not in static:
        return list(static)
    shapes = [
        (),
        *(_shape(r.outer)[1:] for r in loop.rows),
        *(_shape(s.init) for s in loop.states),
        *(_shape(c.outer) for c in loop.consts),
    ]
    inputs = loop.inner.flat()
    (shape,) = infer_shape([rows], inputs, shapes)
    lengths = list(shape[1:])
    if not set(inputs).isdisjoint(ancestors(lengths)):
        raise LoopTypeError(
            "The shape of a watched value is only known in each step of a loop whose number of steps is "
            f"not known either ({loop.options.origin.line}). Watch a value with a fixed shape, for "
            "example a sum."
        )
    return lengths


def _joined(x: TensorVariable) -> Any:
    """``x`` with its first two axes as one."""
    shape = [x.shape[k] for k in range(x.type.ndim)]
    return x.reshape((shape[0] * shape[1], *shape[2:]))


def _cut(item: Exposed, last: int | None) -> Exposed:
    """The last rows alone, where all are some."""
    if last is None or item.present is not None or item.name is None:
        return item
    return item.with_flat([x[-last:] for x in item.flat()])


def _of_branches(node: Apply, last: int | None, moving: set[Variable] | None) -> Any:
    op: Any = node.op
    branches = [branch.clone() for branch in op.branches]  # the op keeps its own
    items = [
        _of_graph(branch, last, _moving_in(branch, node.inputs[1:], moving)) for branch in branches
    ]
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
    remaining = iter(bound[op.n_outs :])
    exposed = [item.with_flat([next(remaining) for _ in item.flat()]) for _, item in all_of_them]
    return dict(zip(node.outputs, bound, strict=False)), exposed


def _with_flag(item: Exposed) -> Exposed:
    if item.present is not None:
        return item
    present = pt.ones(item.value.shape[:1] if item.has_axis else (), dtype="bool")
    return replace(item, present=present)


def _zeros(x: Variable, of: FunctionGraph, branch: FunctionGraph) -> Any:
    """Zeros in the place of ``x``, of the graph ``of``, in another ``branch`` of the same inputs."""
    if not x.type.ndim:
        return pt.zeros((), dtype=x.type.dtype)
    shapes = [_shape(v) for v in of.inputs]
    (shape,) = infer_shape([x], of.inputs, shapes)
    same = dict(zip(of.inputs, branch.inputs, strict=True))
    return pt.zeros(replaced(list(shape), same), dtype=x.type.dtype)


def _shape(v: Any) -> Any:
    return tuple(v.shape[k] for k in range(v.type.ndim)) if hasattr(v.type, "ndim") else None


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
    remaining = iter(bound[n:])
    exposed = [item.with_flat([next(remaining) for _ in item.flat()]) for item in items]
    if not own:
        return dict(zip(node.outputs, bound, strict=False)), exposed
    plain = op.with_graph(FunctionGraph(body.inputs, body.outputs, clone=True))
    return dict(zip(node.outputs, plain.make_node(*node.inputs).outputs, strict=True)), exposed


_WRITERS: dict[Any, Any] = {Scan: _of_loop, Cond: _of_branches, Call: _of_call}


def _rows(item: Exposed) -> Exposed:
    """``item`` with an axis for steps, one row where it is in no loop."""
    if item.has_axis:
        return item
    return item.with_flat([x[None] for x in item.flat()], has_axis=True)
