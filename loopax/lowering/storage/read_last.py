"""Traces with only their last row read are not stored: ``trace[-1]`` -> the final state.

    _, trace = Scan(y = f(...)); trace[-1]  ->  finals = Scan(y' = f(...)); finals[-1]

A row that is a state's next value is in that state's final already. Any other becomes a state of its own,
which starts as zeros of the row's shape. With ``reverse`` the last step makes the first row, ``trace[0]``.
In a loop that stops it is the row of the last step taken.

A loop that may take no step has no last row: where one step cannot be proven, ``trace[-1]`` becomes
``final[None][:min(n_steps, 1)][-1]``, which raises the same IndexError. (A check of ``n_steps > 0`` would
do for concrete values, but JAX skips checks of traced ones, and would then read the initial state.)

Condition: the trace is a tensor, nothing but its last row and its shape is read, and the shape of a row
is known before the loop. Where more is read the trace stays, and so do its reads: only the last row of
a next state is taken from the final, where there surely is one.

Reason: a trace costs memory for each step, and in JAX a loop that stops needs a bound for it.

In the literature: array contraction, to the last row.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from loopax.ir import Scan
from loopax.ir.shapes import trailing_shapes
from loopax.ir.sizes import Dims, dims_of
from loopax.lowering.access.trace_reads import Reads, has_rows, reads_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import replace_outputs
from loopax.lowering.storage.kept_rows import keep_in_states


def read_last(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    dims = dims_of(graph)
    for node in graph.toposort():
        if isinstance(node.op, Scan) and node.op.n_ys and node in graph.apply_nodes:
            _read_last(graph, node, dims)
    map_bodies(graph, read_last)


def _read_last(graph: FunctionGraph, node: Apply, dims: Dims) -> None:
    op: Any = node.op
    last_is_back = not op.options.reverse
    reads = {k: reads_of(graph, node, k, dims) for k in range(op.n_ys)}
    only = {k: asked for k, asked in reads.items() if _is_last(asked, last_is_back)}
    if only:
        shapes = trailing_shapes(op, op.split_inputs(node.inputs))
        only = {k: asked for k, asked in only.items() if shapes[k] is not None}
    for k, asked in reads.items():
        if k not in only and has_rows(node, dims, 1):
            _from_final(graph, node, k, asked, last_is_back)
    if only:
        keep_in_states(graph, node, only, shapes, dims, "read_last")


def _is_last(asked: Reads, last_is_back: bool) -> bool:
    """Whether the rows of the last step are read, and no others."""
    return (
        bool(asked.rows)
        and not asked.whole
        and all(r.back == last_is_back and r.rows == 1 for r in asked.rows)
    )


def _from_final(
    graph: FunctionGraph, node: Apply, k: int, asked: Reads, last_is_back: bool
) -> None:
    """Replace reads of the last row of a trace that stays by the final of the state it belongs to."""
    op: Any = node.op
    states = [j for j, state in enumerate(op.outs.states) if state is op.outs.ys[k]]
    if states:
        rows = [r for r in asked.rows if r.back == last_is_back and r.rows == 1]
        final = node.outputs[states[0]]
        pairs = {r.out: r.on_row(final) for r in rows if r.row is not None}
        replace_outputs(graph, pairs, "read_last")
