"""A sum over the rows of a trace -> a state that adds them up.

    ys = Scan(...); (f(ys, xs)).sum(axis=0)           ->  total = Scan(total + f(y, x))
    f(join(a, ys), xs).sum()                          ->  f(a, xs[:1]).sum() + total over ys, xs[1:]

The sum becomes a loop of its own, over the rows that it adds. `fuse_loops`, which comes next, fuses it with
the loop that makes the rows, since it may reorder a sum.

Condition: float or integer rows, of a trace of a loop that takes all its steps, or computed from such a
trace row by row; each summand has a static shape, which the initial total needs. The rows of a trace have
one shape: where the shape depends on the step, the trace stays, and raises if they differ.

Reason: where only the sum is read, nothing is stored and no second sweep is needed: a likelihood of GARCH
or AR(2) is then one loop, as by hand. JAX does not use this pass: XLA sums an array faster than a loop
does.

In the literature: reduction fusion.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import UNEQUAL_LENGTHS
from loopax.base.upstream.pytensor import joined_rows
from loopax.facts.families import normalized
from loopax.facts.rows import row_wise_inputs, stands_for_all_rows
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.ops.checked import Checked
from loopax.ir.replace import replaced
from loopax.ir.shapes import trailing_shapes
from loopax.ir.sizes import unconditional_dims_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.fusion.fusion_plan import can_be_fused
from loopax.lowering.open_loop import replace_outputs

_MOST = 200  # most row-wise values in one sum


def sum_in_loops(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    if any(can_be_fused(node.op) for node in graph.apply_nodes):
        order = {node: k for k, node in enumerate(graph.toposort())}
        for node in order:
            if _is_sum(node) and (new := _in_loop(graph, node, order)) is not None:
                replace_outputs(graph, {node.outputs[0]: new}, "sum_in_loops")
    map_bodies(graph, sum_in_loops)


def _is_sum(node: Apply) -> bool:
    op: Any = node.op
    return (
        isinstance(op, CAReduce)
        and isinstance(op.scalar_op, ps.Add)
        and (op.axis is None or 0 in op.axis)
        and node.inputs[0].type.ndim > 0
        and node.outputs[0].type.dtype[0] in "fiu"
    )


def _in_loop(graph: FunctionGraph, node: Apply, order: dict[Apply, int]) -> Any:
    """The sum as a loop over the rows of a trace; None where there is no trace."""
    arrays = _leaves(node.inputs[0])
    if arrays is None:
        return None
    leaves, for_all_rows = arrays
    loops = [v.owner for v in leaves if _is_trace(v)]
    if not all(_rows_have_one_shape(v) for v in leaves if _is_trace(v)):
        return None
    if loops:
        return _added_up(node, node.inputs[0], max(loops, key=lambda n: order.get(n, -1)))
    joins = [v for v in leaves if _joins_trace(v)]
    return _in_parts(graph, node, joins[0], leaves, for_all_rows) if len(joins) == 1 else None


def _leaves(x: Variable) -> tuple[list[Any], list[Any]] | None:
    """The arrays from whose rows ``x`` is computed row by row, and those used for all rows.

    None if there are too many.
    """
    stack, seen = [x], {x}
    leaves: list[Any] = []
    for_all_rows: list[Any] = []
    while stack:
        v: Any = stack.pop()
        inputs = [] if v.owner is None else v.owner.inputs
        # An op that is given its length yields all rows, so it cannot be computed part by part.
        if not inputs or len(row_wise_inputs(v.owner)) < len(inputs):
            leaves.append(v)
            continue
        new = [u for u in inputs if u not in seen]
        seen.update(new)
        for u in new:
            (for_all_rows if stands_for_all_rows(u) else stack).append(u)
        if len(seen) > _MOST:
            return None
    return leaves, for_all_rows


def _is_trace(v: Variable) -> bool:
    op: Any = v.owner and v.owner.op
    return can_be_fused(op) and v in v.owner.outputs[op.n_states :]


def _rows_have_one_shape(trace: Variable) -> bool:
    """Whether the shape of each row of ``trace`` is known before its loop runs."""
    if None not in trace.type.shape[1:]:
        return True
    op: Any = trace.owner.op
    shapes = trailing_shapes(op, op.split_inputs(trace.owner.inputs))
    return shapes[trace.owner.outputs.index(trace) - op.n_states] is not None


def _added_up(node: Apply, x: Variable, loop: Apply) -> Any:
    """The sum ``node`` over rows of ``x``, one for each step of ``loop``."""
    op: Any = node.op
    out: Any = node.outputs[0].type
    later_axes = tuple(k - 1 for k in normalized(op.axis, x.type.ndim) if k > 0)
    row: Any = TensorType(x.type.dtype, x.type.shape[1:])()
    term = op.clone(axis=later_axes)(row) if later_axes else row
    if None in term.type.shape:
        return None
    dtype = getattr(op, "acc_dtype", None) or out.dtype
    total = TensorType(dtype, term.type.shape)()
    body = BodyOuts([total + term.astype(dtype)], [])
    adding = Scan.from_body(
        BodyArgs(INDEX_TYPE(), [row], [total], []), body, loop.op.options._replace(name="sum")
    )
    start = pt.constant(np.zeros(term.type.shape, dtype))
    final: Any = adding.bind(ScanArgs(loop.inputs[0], [x], [start], []))[0]
    return out.filter_variable(final.astype(out.dtype))


# -- joins -----------------------------------------------------------------------------------------


def _joins_trace(v: Variable) -> bool:
    parts = joined_rows(v.owner)
    return parts is not None and any(map(_is_trace, parts))


def _in_parts(
    graph: FunctionGraph,
    node: Apply,
    join: Variable,
    leaves: Sequence[TensorVariable],
    for_all_rows: Sequence[Variable],
) -> Any:
    """The sum over each part of ``join``, added up; the other leaves are sliced accordingly.

    Values ``for_all_rows`` may be read from all parts: in ``p - p.max()`` the maximum stays whole.
    """
    parts = joined_rows(join.owner)
    assert parts is not None
    dims = unconditional_dims_of(graph)
    # Do not use the length of a trace: its loop would have to run before the sum.
    lengths = [p.owner.inputs[0] if _is_trace(p) else p.shape[0] for p in parts]
    total: Any = pt.add(*lengths) if len(lengths) > 1 else lengths[0]
    others: dict[Any, Any] = {}
    for v in leaves:
        if v is join:
            continue
        same = dims.length(v) == dims.length(join)
        check = Checked(ValueError, UNEQUAL_LENGTHS)
        others[v] = v if same else check(v, pt.eq(v.shape[0], total))
    terms, start = [], pt.constant(0, dtype="int64")
    x, out = node.inputs[0], node.outputs[0].type
    for part, n in zip(parts, lengths, strict=True):
        stop = start + n
        here = {v: u[start:stop] for v, u in others.items()}
        rows = {join: part.astype(join.type.dtype), **here}
        (cut,) = replaced([x], rows, roots=for_all_rows)
        new = _added_up(node, cut, part.owner) if _is_trace(part) else None
        terms.append(node.op(cut) if new is None else new)
        start = stop
    return out.filter_variable(reduce(operator.add, terms))
