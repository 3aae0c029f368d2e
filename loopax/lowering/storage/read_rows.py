"""``trace[-3:]``, ``trace[0]``, ``trace[:10]`` -> loops that keep only the rows that are read.

    trace[-3:]   ->  the last 3 rows as states that shift, for up to 4 rows
    trace[:2]    ->  the first 2 rows as states that are set once, for up to 4 rows
    trace[-50:]  ->  the first steps without a trace, then the last 50 with it
    trace[:50]   ->  50 steps, where nothing else of the loop is read

Conditions. All forms: the trace is a tensor whose rows have a shape that is known before the loop, and
all that is read of it, its shape apart, are rows at a constant distance from an end. The states work for
loops that stop, in either direction. Two loops, and fewer steps: the loop has no truncated derivative, its
sequences are tensors, and its trip count is a constant or a length, which JAX knows when it traces
(any other number makes a ``lax.while_loop`` of each part). Two loops: it does not stop, and every trace
is read at the last steps alone. Fewer steps: no step can raise an error that the first one would not.

Left alone are traces with hardly more rows than are read; ``trace[k:]`` and ``trace[::k]``, which read most
rows; and more than 4 rows of a loop that stops: the carry of a batch of such loops is copied at every step.

Reason: a trace costs memory for each step.

In the literature: array contraction, to a few rows; loop peeling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Errors, Structure, facts_of
from loopax.ir import Scan
from loopax.ir.effects import Speculation, errors, speculation
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.replace import replaced
from loopax.ir.shapes import trailing_shapes
from loopax.ir.sizes import DimExpr, Dims, Length, dims_of
from loopax.lowering.access.trace_reads import Reads, reads_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, replace_outputs
from loopax.lowering.storage.kept_rows import keep_in_states, shape_of

_STATES = 4  # most rows kept as states, each of which is copied at every step


def read_rows(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    dims = dims_of(graph)
    for node in graph.toposort():
        if isinstance(node.op, Scan) and node.op.n_ys and node in graph.apply_nodes:
            _read_rows(graph, node, dims)
    map_bodies(graph, read_rows)


def _read_rows(graph: FunctionGraph, node: Apply, dims: Dims) -> None:
    op: Any = node.op
    reads = {k: reads_of(graph, node, k, dims) for k in range(op.n_ys)}
    reads = {k: asked for k, asked in reads.items() if asked.whole or asked.rows or asked.shapes}
    some = {k: asked for k, asked in reads.items() if not asked.whole and asked.rows}
    if not some:
        return
    shapes = trailing_shapes(op, op.split_inputs(node.inputs))
    some = {k: asked for k, asked in some.items() if shapes[k] is not None}
    if not some:
        return
    first, last = op.options.reverse, not op.options.reverse  # whether these rows are at the back
    rows = {back: max((f.most(back) for f in some.values()), default=0) for back in (False, True)}
    most = max(f.most(True) + f.most(False) for f in some.values())
    few = {
        k: asked
        for k, asked in some.items()
        if asked.most(True) <= _STATES
        and asked.most(False) <= _STATES
        and _is_longer(node, dims, most)
    }
    if len(some) == len(reads) and _can_be_cut(node, dims, max(rows.values())):
        if not rows[last] and rows[first] and _is_all(graph, node, some):
            return _take_fewer_steps(graph, node, some, shapes, rows[first], dims)
        if not rows[first] and len(few) < len(some) and not op.stops:
            return _split(graph, node, some, shapes, rows[last], dims)
    if few:
        left = keep_in_states(graph, node, few, shapes, dims, "read_rows")
        _read_rows(graph, left, dims)  # which may enable more


def _is_longer(node: Apply, dims: Dims, rows: int) -> bool:
    """Whether a trace may have at least twice as many rows as are read."""
    return not dims.at_least(DimExpr(offset=2 * rows - 1) - dims.value(node.inputs[0]))


def _can_be_cut(node: Apply, dims: Dims, rows: int) -> bool:
    op: Any = node.op
    length = dims.value(node.inputs[0])
    return (
        op.options.truncate_gradient < 0
        and all(isinstance(r.type, DenseTensorType) for r in op.args.rows)
        and _is_longer(node, dims, rows)
        and (dims.at_least(length, rows) or _is_static(length))
    )


def _is_static(expr: DimExpr) -> bool:
    """Whether ``expr`` contains only lengths of inputs."""
    return all(isinstance(v, Length) and v.of.owner is None for v in expr.roots())


# -- fewer steps -------------------------------------------------------------------------------------


# Whether these raise depends only on shapes, and on integers whose values are unknown.
_OF_SHAPES = Structure.ELEMENTWISE, Structure.REDUCES, Structure.CONTRACTS


def _cannot_raise_later(node: Apply) -> bool:
    """Whether ``node`` at a later step raises only errors that it also raises at the first.

    Shapes are the same at every step, which leaves integers and indices.
    """
    if facts_of(node.op).structure in _OF_SHAPES:
        return not errors(node) & ~(Errors.SHAPE | Errors.LENGTH)
    return speculation(node) <= Speculation.CHEAP


def _is_all(graph: FunctionGraph, node: Apply, reads: dict[int, Reads]) -> bool:
    """Whether nothing but ``reads`` needs the loop, and nothing needs its later steps."""
    op: Any = node.op
    outs = op.split_outputs(node.outputs)
    others = [*outs.finals, *([outs.n_done, outs.stopped] if op.stops else [])]
    if any(graph.clients.get(v) for v in others):
        return False
    if op.stops and any(asked.shapes for asked in reads.values()):
        return False
    return all(map(_cannot_raise_later, op.fgraph.toposort()))


def _take_fewer_steps(
    graph: FunctionGraph,
    node: Apply,
    reads: dict[int, Reads],
    shapes: Sequence[Sequence[Variable]],
    rows: int,
    dims: Dims,
) -> None:
    op: Any = node.op
    length = dims.value(node.inputs[0])
    if any(dims.length(x) != length for x in op.split_inputs(node.inputs).sequences):
        return  # raises if the sequence has another length
    steps = _at_most(node, dims, rows)
    first = node.inputs[0] - steps if op.options.reverse else None
    loop = _part(
        node, steps, first, slice(first, None) if op.options.reverse else slice(steps), reads
    )
    loop.bind()
    replace_outputs(graph, _rows_of(node, loop, reads, shapes), "read_rows")


def _at_most(node: Apply, dims: Dims, rows: int) -> Any:
    """The smaller of the trip count and ``rows``."""
    n = node.inputs[0]
    if dims.at_least(dims.value(n), rows):
        return pt.constant(rows, dtype="int64")
    return pt.minimum(n, rows)


# -- two loops ---------------------------------------------------------------------------------------


def _split(
    graph: FunctionGraph,
    node: Apply,
    reads: dict[int, Reads],
    shapes: Sequence[Sequence[Variable]],
    rows: int,
    dims: Dims,
) -> None:
    op: Any = node.op
    late = _at_most(node, dims, rows)
    early = node.inputs[0] - late
    if op.options.reverse:  # the first steps use the last rows
        head = _part(node, early, late, slice(late, None), {})
        tail = _part(node, late, None, slice(None, late), reads)
    else:
        head = _part(node, early, None, slice(None, early), {})
        tail = _part(node, late, early, slice(early, None), reads)
    for state, final in zip(tail.states, head.bind(), strict=True):
        state.init = state.inner.type.filter_variable(final)
    tail.bind()
    finals = {s.final: s.new for s in tail.states}
    replace_outputs(graph, finals | _rows_of(node, tail, reads, shapes), "read_rows")


def _part(
    node: Apply, n: Variable, first: Variable | None, rows: slice, reads: dict[int, Reads]
) -> OpenLoop:
    """A loop of ``n`` steps on the rows from ``first`` on, with the traces in ``reads``."""
    loop = OpenLoop.of(node)
    loop.ys = [y for k, y in enumerate(loop.ys) if k in reads]
    loop.n_steps = n
    for row in loop.rows:
        row.outer = row.outer[rows]
    if first is not None:
        i, offset = INDEX_TYPE("i"), INDEX_TYPE("first")
        loop.set_outputs(replaced(loop.outputs(), {loop.i: i + offset}))
        loop.i = i
        loop.consts.append(Input(offset, first))
    return loop


def _rows_of(
    node: Apply, loop: OpenLoop, reads: dict[int, Reads], shapes: Sequence[Sequence[Variable]]
) -> dict[Any, Any]:
    """Replacements for the reads of traces of ``node``, from ``loop``, a part that has been bound."""
    pairs: dict[Any, Any] = {}
    for y, (k, asked) in zip(loop.ys, reads.items(), strict=True):
        pairs |= {r.out: r.on(y.new) for r in asked.rows}
        pairs |= {a.outputs[0]: shape_of(a, node.inputs[0], shapes[k]) for a in asked.shapes}
    return pairs
