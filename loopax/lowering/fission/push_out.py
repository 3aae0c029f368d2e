"""Functions of the rows alone leave the loop, as operations on all rows.

    map(lambda r: f(r, c), x)              ->  F(x, c)
    scan(lambda s, r: g(s, r @ w), s, x)   ->  scan(lambda s, p: g(s, p), s, x @ w)

A loop without states has nothing but such functions: every trace that can be computed this way is, and if
all can, no loop is left. In any other loop, values computed from its sequences or its index alone become
new sequences if they contain a product, a sum or a function such as ``exp``; or if they are numbers, and
the loop then reads fewer sequences and constants. In a sum or product the terms that depend on rows alone
are combined first.

Condition: the loop does not stop, and a loop whose trace becomes an operation has no truncated derivative.
(A new sequence gets no cotangent from a truncated step, and passes none on: as in the step.) Each op has a
form for all rows (`loopax.lowering.fission.row_wise`), so that it is neither random nor raises for the
values in a row. No intermediate result is larger than the rows and the traces: scans also bound memory. The
sequences have a row for each step: where that cannot be proved, it is checked as the loop would, unless a
backend could not (see `loopax.lowering.analysis.open_lengths`). A loop that has neither rows nor traces,
and whose trip count is an input, gets no rows: JAX would have to know how many.

Reason: one product of matrices replaces n products of a vector and a matrix, and no loop may be left.

It comes late: split_loops has moved computations that feed no state after the loop, and no later fusion
undoes that. Shapes that do not match raise also where the loop takes no step; a product of all rows may
differ from the product of a single row in its last bits.

In the literature: loop vectorization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import is_elementwise
from loopax.ir import Scan
from loopax.ir.ops.calling_convention import UNBOUNDED, BodyArgs
from loopax.ir.replace import replaced
from loopax.ir.shapes import repeated
from loopax.ir.sizes import Dims, Length, unconditional_dims_of
from loopax.lowering.analysis.checked_steps import Conditions, checked, is_checked, step_conditions
from loopax.lowering.analysis.open_lengths import KnownLengths
from loopax.lowering.bodies import map_bodies
from loopax.lowering.fission.row_wise_body import Bulk, RowWiseBody, largest
from loopax.lowering.open_loop import Input, OpenLoop, replace_outputs


def push_out(graph: FunctionGraph) -> None:
    """Run the pass on the bodies of ``graph``, and then on ``graph`` itself, in place."""
    rewrite_loops(graph, _pushed_out, "push_out")


def push_maps_out(graph: FunctionGraph) -> None:
    """Run the pass on loops without states alone, in place, in the bodies of ``graph`` first.

    In other loops large rows cost a CPU more than they save (`loopax.lowering.analysis.computed_rows`).
    """
    rewrite_loops(graph, _map_out, "push_maps_out")


def rewrite_loops(
    graph: FunctionGraph,
    rewrite: Callable[[Apply, Dims, KnownLengths], dict[Any, Any]],
    reason: str,
    known: KnownLengths | None = None,
) -> None:
    """Replace outputs of loops, in place, by the results of ``rewrite(node, dims, known)``.

    Bodies come first: a map inside a map is an op on rows by the time the outer one is rewritten.
    """
    known = KnownLengths.at(graph) if known is None else known
    inside = known.inside()
    map_bodies(graph, lambda body: rewrite_loops(body, rewrite, reason, inside))
    dims = unconditional_dims_of(graph)  # a loop that disappears no longer checks lengths
    for node in graph.toposort():
        if isinstance(node.op, Scan) and (new := rewrite(node, dims, known)):
            replace_outputs(graph, new, reason)


def _pushed_out(node: Apply, dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    op: Any = node.op
    if not op.n_states:
        return _map_out(node, dims, known)
    if op.stops or _has_no_rows(node, dims):
        return {}
    return before_the_states(node, dims, known, _frontier, _with_rows_first)


def _map_out(node: Apply, dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    op: Any = node.op
    # The gradient of the first rows of a trace is cut off by truncation.
    if op.n_states or op.stops or op.options.truncate_gradient >= 0:
        return {}
    return _without_map(node, dims, known)


def _has_no_rows(node: Apply, dims: Dims) -> bool:
    """Whether the loop has neither rows nor traces, and its trip count does not follow from lengths.

    JAX need not know that number while it traces, and would have to if there were a row for each step.
    """
    op: Any = node.op
    args = op.split_inputs(node.inputs)
    steps = dims.value(args.n_steps).roots()
    return not args.sequences and not op.n_ys and not all(isinstance(v, Length) for v in steps)


def _without_map(node: Apply, dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    """Compute the traces of a loop without states without a loop, where that is possible."""
    op: Any = node.op
    conditions = conditions_of(op, node, dims, known)
    if conditions is None:
        return {}
    tensors = [v for v in (*op.args.rows, *op.outs.ys) if isinstance(v.type, DenseTensorType)]
    bulk = largest([Bulk.of(v) for v in tensors])
    body = RowWiseBody(
        op.args, op.fgraph.toposort(), bulk, known.covers(dims.value(node.inputs[0]))
    )
    leave = [k for k, y in enumerate(op.outs.ys) if y in body]
    if not leave:
        return {}
    outside = outside_of(op.args, node, conditions)
    traces = row_traces(op, node, body, leave, outside, conditions)
    if len(leave) == op.n_ys:
        return traces
    loop = OpenLoop.of(node)
    loop.ys = [y for k, y in enumerate(loop.ys) if k not in leave]
    loop.drop_unread()
    return traces | loop.close()


def row_traces(
    op: Scan,
    node: Apply,
    body: RowWiseBody,
    leave: Sequence[int],
    outside: dict[Variable, Variable],
    conditions: Conditions,
) -> dict[Any, Any]:
    """Map the traces at ``leave`` to the same arrays computed without the loop, from ``outside``."""
    n = checked(op.split_inputs(node.inputs).n_steps, conditions)
    ys = [op.outs.ys[k] for k in leave]
    traces = op.split_outputs(node.outputs).traces
    return {
        traces[k]: x if body.varies.get(y, False) else repeated(pt.as_tensor(x), n)
        for k, y, x in zip(leave, ys, body.computed(ys, outside), strict=True)
    }


def before_the_states(
    node: Apply,
    dims: Dims,
    known: KnownLengths,
    chosen: Callable[[RowWiseBody, Sequence[Any]], list[Any]],
    regrouped: Callable[[RowWiseBody, Sequence[Any]], list[Any]] | None = None,
) -> dict[Any, Any]:
    """Map outputs to the outputs of a loop that reads the ``chosen`` values as new sequences."""
    op: Any = node.op
    conditions = conditions_of(op, node, dims, known)
    if conditions is None:
        return {}
    known_steps = known.covers(dims.value(node.inputs[0]))
    loop = OpenLoop.of(node)
    # A separate copy of the body: facts about the frozen one are about other variables.
    args, outputs = loop.inner, loop.outputs()
    body = RowWiseBody(args, list(toposort(outputs)), None, known_steps)
    if regrouped is not None and (new := regrouped(body, outputs)) != outputs:
        outputs = new
        body = RowWiseBody(args, list(toposort(outputs)), None, known_steps)
    selected = chosen(body, outputs)
    if not selected:
        return {}
    new_rows = [v.type() for v in selected]
    pushed = body.computed(selected, outside_of(args, node, conditions))
    loop.rows += [Input(r, x) for r, x in zip(new_rows, pushed, strict=True)]
    loop.set_outputs(replaced(outputs, dict(zip(selected, new_rows, strict=True))))
    loop.drop_unread()
    return loop.close()


def _with_rows_first(body: RowWiseBody, outputs: Sequence[Variable]) -> list[Any]:
    """Regroup sums and products in ``outputs`` so that terms of rows and constants alone come first."""
    new: dict[Any, Any] = {}
    for node in body.nodes:
        inputs = [new.get(v, v) for v in node.inputs]
        if first := _terms_of_rows(body, node):
            op: Any = node.op
            others = [x for v, x in zip(node.inputs, inputs, strict=True) if v not in first]
            new[node.outputs[0]] = op(op(*first), *others)
        elif inputs != node.inputs:
            new.update(zip(node.outputs, node.clone_with_new_inputs(inputs).outputs, strict=True))
    return [new.get(v, v) for v in outputs]


def _terms_of_rows(body: RowWiseBody, node: Apply) -> list[Any]:
    """The terms of a sum or product that do not depend on states; empty if there are too few."""
    if node in body.row_wise or not is_elementwise(node, ps.Add, ps.Mul) or len(node.inputs) < 3:
        return []
    first = [v for v in node.inputs if v.type == node.outputs[0].type and v in body]
    is_part = 1 < len(first) < len(node.inputs)
    return first if is_part and any(body.varies.get(v, False) for v in first) else []


def _frontier(body: RowWiseBody, outputs: Sequence[Variable]) -> list[Any]:
    """The variables worth computing for all rows that the rest of the body reads."""
    others = [node for node in body.nodes if node not in body.row_wise]
    read = list(dict.fromkeys([*(v for node in others for v in node.inputs), *outputs]))
    computed = [v for v in read if v.owner in body.row_wise and body.varies.get(v, False)]
    dear = [v for v in computed if v in body.dear]
    if computed == dear or any(Bulk.of(v).rank for v in computed):
        return dear
    (rows, consts), (rows_left, consts_left) = (
        _ports(body, outputs, new) for new in (dear, computed)
    )
    fewer = rows_left <= rows and rows_left + consts_left < rows + consts
    return computed if fewer else dear


def _ports(
    body: RowWiseBody, outputs: Sequence[Variable], new: Sequence[Variable]
) -> tuple[int, int]:
    """The numbers of rows and of constants that ``outputs`` depend on, if ``new`` ones become rows."""
    inputs = [v for v in ancestors(outputs, new) if v.owner is None and v in body.varies]
    rows = sum(body.varies[v] for v in inputs)
    return rows + len(new), len(inputs) - rows


def conditions_of(op: Scan, node: Apply, dims: Dims, known: KnownLengths) -> Conditions | None:
    """The conditions to check; None where a backend could not check them, or the loop never ends."""
    args = op.split_inputs(node.inputs)
    n = dims.value(args.n_steps)
    if n.constant == UNBOUNDED:
        return None
    conditions = step_conditions(op, args, dims)
    if is_checked(args.n_steps):  # without the loop, readers of the rows do not check this number
        conditions.append((f"{op} takes 0 steps or more.", pt.ge(args.n_steps, 0)))
    lengths = [n, *map(dims.length, args.sequences)]
    return conditions if not conditions or all(map(known.covers, lengths)) else None


def outside_of(args: BodyArgs, node: Apply, conditions: Conditions) -> dict[Any, Any]:
    """Map the index, rows and constants in ``args``, the inputs of a step, to outer variables.

    ``args`` belong to the step of ``node``, or to a copy of it.
    """
    op: Any = node.op
    operands = op.split_inputs(node.inputs)
    outside = {args.i: pt.arange(checked(operands.n_steps, conditions), dtype="int64")}
    for v, x in zip(args.rows, operands.sequences, strict=True):
        if isinstance(v.type, DenseTensorType):
            outside[v] = checked(x, conditions)
    return outside | dict(zip(args.consts, operands.consts, strict=True))
