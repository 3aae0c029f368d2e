"""Structured loops ``Scan`` -> ``Loop`` without sequences and traces, for backends with their own loops.

    finals, traces = Scan(n_steps, xs, states, consts)
    ->
    *finals, *buffers = Loop(n_steps, [], [*states, *empty buffers], [*xs, *consts])

- A sequence is a constant, read at the index of the step.
- A trace is a buffer of ``n_steps`` rows, a state in which each step sets its row. Its trailing shape
  must be known before the loop starts. A loop that stops early uses the first rows (the last, with
  ``reverse``), where ``n_steps`` is a size one can allocate: see `_can_be_allocated`.
- Any other trace is a typed list that each step appends to, stacked after the loop where its rows
  are tensors.
- An output that nothing reads gets neither.

Condition: none. It comes last: a buffer carries less information than a trace.

Everything stays pure here. A buffer whose only reader is the write into it is written in place by a
backend that compiles loops; run by `evaluate` it is copied at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.type import DenseTensorType, TensorType
from pytensor.tensor.variable import TensorVariable
from pytensor.typed_list import append, getitem, length, reverse

from loopax.ir import BodyArgs, BodyOuts, Cond, Loop, Scan, ScanArgs, Stack, TraceType
from loopax.ir.ops.bounds import known_number
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.ops.trace import stacked
from loopax.ir.replace import replaced
from loopax.ir.shapes import trailing_shapes
from loopax.ir.sizes import Dims, unconditional_dims_of
from loopax.lowering.analysis.checked_steps import checked, step_conditions

_ROWS = 2**16  # up to this, a bound serves as a buffer's length even if the loop may stop early


def scan_to_loop(graph: FunctionGraph) -> None:
    """Replace every Scan in ``graph`` and in the bodies inside it, in place."""
    for node in graph.toposort():
        op: Any = node.op
        if not isinstance(op, InnerGraphOp):
            continue
        op = _lowered(op)
        if isinstance(op, Scan) and not isinstance(op, Loop):
            args = op.split_inputs(node.inputs)
            read = [bool(graph.clients[v]) for v in node.outputs]
            # Use the old body: a Scan in it says more about the shapes of its traces than a Loop does.
            dims = unconditional_dims_of(graph)
            outs = _bare(op, args, dims, read, trailing_shapes(node.op, args))
        elif op is not node.op:
            outs = op.make_node(*node.inputs).outputs
        else:
            continue
        pairs = [(v, o) for v, o in zip(node.outputs, outs, strict=True) if o is not None]
        graph.replace_all(pairs, reason="scan_to_loop")


def _lowered(op: InnerGraphOp) -> InnerGraphOp:
    if not any(isinstance(node.op, InnerGraphOp) for node in op.fgraph.toposort()):
        return op
    graph = op.unfrozen()
    scan_to_loop(graph)
    new = op.with_graph(graph)
    return op if new.fgraph == op.fgraph else new


def _bare(
    scan: Scan, args: ScanArgs, dims: Dims, read: Sequence[bool], shapes: Sequence[Any]
) -> list[Variable | None]:
    """Replacements for the outputs of ``scan``; None for a trace that nothing reads.

    ``shapes`` are the trailing shapes of the traces, None where one is not known before the loop.
    """
    body = scan.unfrozen()
    inner = scan.split_body_inputs(body.inputs)
    sequences = [stacked(row.type)() for row in inner.rows]
    rows = {
        row: x[inner.i] if isinstance(x.type, DenseTensorType) else getitem(x, inner.i)
        for row, x in zip(inner.rows, sequences, strict=True)
    }
    step = scan.split_body_outputs(replaced(body.outputs, rows))
    n_steps = checked(args.n_steps, step_conditions(scan, args, dims))
    traces = [
        (_Buffer if shape is not None and _fits(scan, args, y) else _List)(y, shape)
        if wanted
        else None
        for y, shape, wanted in zip(step.ys, shapes, scan.split_outputs(read).traces, strict=True)
    ]
    kept = [t for t in traces if t is not None]
    loop = Loop.from_body(
        BodyArgs(
            inner.i, [], [*inner.states, *[t.state for t in kept]], [*sequences, *inner.consts]
        ),
        BodyOuts([*step.states, *[t.written(inner.i) for t in kept]], [], step.stop),
        scan.options,
    )
    states = [*args.states, *[t.start(n_steps) for t in kept]]
    outs = loop.split_outputs(
        loop.bind(ScanArgs(n_steps, [], states, [*args.sequences, *args.consts]))
    )
    buffers = iter(outs.finals[scan.n_states :])
    filled = [
        None if t is None else t.finished(scan, next(buffers), n_steps, outs.n_done) for t in traces
    ]
    return outs._replace(finals=outs.finals[: scan.n_states], traces=filled).flat()


class _Buffer:
    """A trace as a tensor of ``n_steps`` rows; each step sets its own."""

    def __init__(self, y: Variable, shape: Sequence[Any]) -> None:
        self.y, self.shape = y, shape
        self.state = stacked(y.type)()

    def start(self, n_steps: Variable) -> Any:
        # Not `pt.empty`: it folds the ancestors of its lengths to see whether they are constants, and a
        # length may depend on the loop before. Compiling a sequence of many loops took quadratic time.
        dims = [pt.as_tensor(n).astype("int64") for n in (n_steps, *self.shape)]
        shape = [*map(known_number, dims)]
        dtype = self.y.type.dtype
        return Apply(AllocEmpty(dtype), dims, [TensorType(dtype, tuple(shape))()]).outputs[0]

    def written(self, i: Variable) -> Any:
        row = self.y
        if None in row.type.shape:  # otherwise a row of length 1 would be broadcast silently
            row = pt.specify_shape(row, [self.state.shape[k + 1] for k in range(row.type.ndim)])
        return pt.set_subtensor(self.state[i], row)

    def finished(
        self, scan: Scan, buffer: TensorVariable, n_steps: TensorVariable, n_done: Variable | None
    ) -> Any:
        if not scan.stops:
            return buffer
        return buffer[n_steps - n_done :] if scan.options.reverse else buffer[:n_done]


class _List:
    """A trace as a typed list, to which each step appends its row."""

    def __init__(self, y: Variable, shape: Sequence[Any] | None) -> None:
        self.y, self.shape = y, shape
        self.state = TraceType(y.type)()

    def start(self, n_steps: Variable) -> Any:
        return self.state.type.make_constant([])

    def written(self, i: Variable) -> Any:
        return append(self.state, self.y)

    def finished(self, scan: Scan, rows: Any, n_steps: Variable, n_done: Variable | None) -> Any:
        rows = reverse(rows) if scan.options.reverse else rows
        if not isinstance(self.y.type, DenseTensorType):
            return rows
        shape = _shape_of_first(rows) if self.shape is None else self.shape
        return Stack()(rows, *shape)


def _shape_of_first(rows: Variable) -> list[Variable]:
    """The shape of a list's elements; for an empty list from their type, 0 where it is not static."""
    symbol = rows.type()
    element = symbol.type.ttype
    first: Any = getitem(symbol, 0)
    return Cond.from_branches(
        [symbol],
        [first.shape[k].astype("int64") for k in range(element.ndim)],
        [pt.constant(n or 0, dtype="int64") for n in element.shape],
    ).bind(pt.gt(length(rows), 0), [rows])


def _fits(scan: Scan, args: ScanArgs, y: Variable) -> bool:
    return isinstance(y.type, DenseTensorType) and (not scan.stops or _can_be_allocated(args))


def _can_be_allocated(args: ScanArgs) -> bool:
    """Whether ``n_steps``, the bound of a loop that stops early, is a feasible number of rows to allocate.

    It is if there is a sequence, which has that many rows, or if it is a small constant. A bound that is
    computed may be any number, even the largest integer.
    """
    n_steps = args.n_steps
    return bool(args.sequences) or (isinstance(n_steps, Constant) and int(n_steps.data) <= _ROWS)
