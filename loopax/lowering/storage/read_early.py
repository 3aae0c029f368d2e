"""Reads of rows move before row-wise computations: ``f(trace)[-1]`` -> ``f(trace[-1])``.

    (trace**2 + x)[-1]      ->  trace[-1] ** 2 + x[-1]
    trace.sum(axis=1)[0]    ->  trace[0].sum()
    (trace @ m)[-3:]        ->  trace[-3:] @ m

Condition: the result has a row for each row of a trace, and only single rows of it, or one slice, are read
(two overlapping slices would compute their common rows twice). Its operands with a leading axis have
one length there, so that an index means the same in each, and no row that is not read could raise.

Reason: a trace of which few rows are read need not be stored, but `read_last` and `read_rows` see only
reads of the trace itself.

In the literature: slices are moved up to what they read ("bubble up" in MLIR's tensor dialect).
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Errors, facts_of
from loopax.facts.rows import by_rows
from loopax.ir import Scan
from loopax.ir.effects import Effects, effects, errors
from loopax.ir.sizes import Access, Dims, dims_of, read_of
from loopax.lowering.analysis.equal_rows import without_leading
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import replace_outputs


def read_early(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    dims = dims_of(graph)
    for node in reversed(_of_traces(graph, dims)):
        reads = _reads(graph, node)
        if reads:
            pairs = {out: _on_rows(node, read) for out, read in reads.items()}
            replace_outputs(graph, pairs, "read_early")
    map_bodies(graph, read_early)


def _of_traces(graph: FunctionGraph, dims: Dims) -> list[Apply]:
    """The nodes, in order, that compute each row of their result from one row of a trace."""
    rows: set[Any] = set()
    pairs = []
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            traces = node.op.split_outputs(node.outputs).traces
            rows.update(v for v in traces if isinstance(v.type, DenseTensorType))
        elif any(v in rows for v in node.inputs) and _is_by_row(node, dims):
            rows.add(node.outputs[0])
            pairs.append(node)
    return pairs


def _is_by_row(node: Apply, dims: Dims) -> bool:
    """Whether each row of the result depends on the same row of each operand, and cannot raise alone."""
    op: Any = node.op
    out: Any = node.outputs[0]
    if facts_of(op).lengths(node):  # of the whole result: `_on_rows` applies the op to some rows
        return False
    if len(node.outputs) > 1 or not getattr(out.type, "ndim", 0) or effects(op) is not Effects.NONE:
        return False
    if errors(node) & ~Errors.SHAPE or facts_of(op).behind(node, -1) is None:
        return False
    operands: list[Any] = [node.inputs[k] for k in by_rows(node)]
    lengths = [dims.length(v) for v in operands if v.type.shape[0] != 1]
    return bool(lengths) and all(n == lengths[0] for n in lengths)


def _reads(graph: FunctionGraph, node: Apply) -> dict[Any, Access]:
    """The reads of the result of ``node``; empty if anything needs all of it."""
    reads: dict[Any, Access] = {}
    for client, place in graph.clients[node.outputs[0]]:
        read = None if place else read_of(client)
        if read is None:
            return {}
        reads[client.outputs[0]] = read
    return reads if len(reads) == 1 or all(r.is_row for r in reads.values()) else {}


def _on_rows(node: Apply, read: Access) -> Any:
    """Compute the ``read`` of the result of ``node`` from rows of its operands."""
    own = by_rows(node)
    apply = facts_of(node.op).behind(node, -1) if read.is_row else node.op
    result: Any = apply(*(_row(v, read) if k in own else v for k, v in enumerate(node.inputs)))
    index = read.trailing if read.is_row else (slice(None), *read.trailing)
    return result[index] if read.trailing else result


def _row(v: Any, read: Access) -> Any:
    """The rows of an operand that ``read`` takes; if it is broadcast along rows, its one row."""
    if v.type.shape[0] != 1:
        return v[read.rows]
    return without_leading(v, v.type.ndim) if read.is_row else v
