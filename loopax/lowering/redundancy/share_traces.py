"""Traces of one variable, with its axes in different orders  ->  one trace.

    ys, zs = scan(lambda s: (f(s), f(s).T))   ->  ys = scan(lambda s: f(s)); zs = ys.dimshuffle(0, 2, 1)
    scan over ys.dimshuffle(0, 2, 1), row r   ->  scan over ys, row r.T

Condition: the rows differ in the order of their axes, or in axes of length 1. A sequence is read in another
order only if it is a trace.

Reason: a derivative often reads both a matrix and its transpose, as for a product of matrices, or a number
and the 1 x 1 matrix of it. Each trace is an array in memory, which the forward loop fills and the backward
loop reads; a transpose in a step is free. The gradient of an extended Kalman filter stores 23 arrays
instead of 28.

In the literature: redundant store elimination.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import DenseTensorType

from loopax.facts.axes import shuffled, unshuffled, unshuffled_with_order
from loopax.ir import Scan
from loopax.ir.replace import replaced
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import OpenLoop, Y, replace_outputs


def share_traces(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            groups = _equal_up_to_order(node.op.outs.ys)
            if groups or any(_trace_of(x) is not None for x in node.inputs):
                replace_outputs(graph, _shared(node, groups), "share_traces")
    map_bodies(graph, share_traces)


def _equal_up_to_order(ys: Sequence[Any]) -> list[list[int]]:
    """The positions of rows that differ only in the order of their axes, a list for each variable."""
    positions = defaultdict(list)
    for k, y in enumerate(ys):
        if isinstance(y.type, DenseTensorType):
            positions[unshuffled(y)].append(k)
    return [group for group in positions.values() if len({ys[k] for k in group}) > 1]


def _trace_of(x: Variable) -> tuple[Any, list[Any]] | None:
    """The trace that ``x`` transposes, behind the leading axis, and the order of its axes; or None."""
    v, order, has_moved = x, [*range(getattr(x.type, "ndim", 0))], False
    while v.owner is not None and isinstance(v.owner.op, DimShuffle | SpecifyShape):
        if isinstance(v.owner.op, DimShuffle):
            order = [k if k == "x" else v.owner.op.new_order[k] for k in order]
            has_moved = True
        v = v.owner.inputs[0]
    is_trace = v.owner is not None and isinstance(v.owner.op, Scan)
    return (v, order) if is_trace and has_moved and order[:1] == [0] else None


def _of_lengths(trace: Variable, order: Sequence[Any], x: Any) -> Any:
    """Give ``trace`` the static lengths of ``x``, which has its axes in this order."""
    lengths = dict(zip(order, x.type.shape, strict=True))
    return pt.specify_shape(trace, [lengths.get(k) for k in range(trace.type.ndim)])


def _shared(node: Apply, groups: Sequence[Sequence[int]]) -> dict[Variable, Variable]:
    """Map outputs of ``node`` to outputs of a loop that emits one row for each group."""
    loop = OpenLoop.of(node)
    _read_traces(loop)
    new_ys = []
    for group in groups:
        ys = [loop.ys[k] for k in group]
        new_ys.append((Y(unshuffled(ys[0].inner), label=ys[0].label), ys))
    others = {k for group in groups for k in group}
    loop.ys = [y for k, y in enumerate(loop.ys) if k not in others] + [y for y, _ in new_ys]
    new = loop.close()
    for shared, ys in new_ys:
        for y in ys:
            _, order = unshuffled_with_order(y.inner)
            order = [0, *(k if k == "x" else k + 1 for k in order)]
            new[y.trace] = shuffled(_of_lengths(shared.new, order, y.trace), order)
    return new


def _read_traces(loop: OpenLoop) -> None:
    """Replace sequences that are transposed traces, in place."""
    rows: dict[Variable, Any] = {}
    for row in loop.rows:
        if (moved_trace := _trace_of(row.outer)) is not None:
            trace, order = moved_trace
            row.outer = _of_lengths(trace, order, row.outer)
            inner = row.outer.type.clone(shape=row.outer.type.shape[1:])(name=row.inner.name)
            rows[row.inner] = shuffled(inner, [k if k == "x" else k - 1 for k in order[1:]])
            row.inner = inner
    if rows:
        moved = {
            v: shuffled(rows[x], order)
            for node in toposort(loop.outputs())
            if isinstance(node.op, DimShuffle)
            for v in node.outputs
            for x, order in [unshuffled_with_order(v)]
            if x in rows
        }
        loop.set_outputs(replaced(loop.outputs(), rows | moved))
