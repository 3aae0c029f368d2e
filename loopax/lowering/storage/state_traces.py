"""Joins of a state's trace and its initial or final value -> one trace of the state.

    before = trace of s, from the initial state on       after = trace of s'
    join(0, before, final[None])[1:]                ->   after
    join(0, before[1:], final[None])                ->   after
    join(0, init[None], after)[:-1]                 ->   before

The same holds for a loop in reverse, whose rows are in the order of the sequences too, and for flipped
rows. The loop emits the trace if it does not yet.

Condition: the loop does not stop, its gradient is not truncated, and all its rows are proven to be there.

Reason: PyTensor's traces begin with the initial state, and it slices the part it needs. A loop that reads
such a join needs a value known only at the end of the other loop, and cannot fuse with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Join
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.variable import TensorVariable

from loopax.ir.sizes import DimExpr, Window
from loopax.lowering.access.index_facts import checked_dims
from loopax.lowering.access.pieces import Pieces
from loopax.lowering.access.row_pieces import NONE, ONE, Rows, backwards
from loopax.lowering.bodies import map_bodies
from loopax.lowering.fusion.fusion_plan import can_be_fused
from loopax.lowering.open_loop import OpenLoop, Y, replace_outputs

_FAR = 3  # a slice of a join of a slice of a trace
_MANY = 32


class _Found(NamedTuple):
    """Array ``rows`` equals the trace of state ``k``, after the step (``after``) or before it."""

    rows: Any
    k: int
    after: bool
    backwards: bool


def state_traces(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    if any(isinstance(node.op, Join) for node in graph.apply_nodes):
        pieces = Pieces(checked_dims(graph))
        loops = [node for node in graph.toposort() if can_be_fused(node.op)]
        by_loop = {node: _states_of(graph, node, pieces) for node in loops}
        # Replace only now: the facts about rows refer to the old variables.
        for node, traces in by_loop.items():
            if traces:
                _read_traces(graph, node, traces)
    map_bodies(graph, state_traces)


def _states_of(graph: FunctionGraph, node: Apply, pieces: Pieces) -> list[_Found]:
    """Arrays that are pieced together from traces of the states of ``node``."""
    op: Any = node.op
    n = pieces.dims.value(node.inputs[0])
    operands, results = op.split_inputs(node.inputs), op.split_outputs(node.outputs)
    matches = []
    for after, group, ends in (
        (True, op.args.states, results.finals),
        (False, op.outs.states, operands.states),
    ):
        of_state = {state: k for k, state in enumerate(group)}
        for y, inner in enumerate(op.outs.ys):
            k = of_state.get(inner)
            near = [] if k is None else _read_from(graph, results.traces[y])
            if k is None or not near:
                continue
            shifted = _Shifted(pieces, results.traces[y], ends[k], n, after != op.options.reverse)
            for v in near:
                rows = pieces.rows(v)
                if shifted.equal(rows):
                    matches.append(_Found(v, k, after, False))
                elif shifted.equal(backwards(rows)):
                    matches.append(_Found(v, k, after, True))
    return matches


def _read_from(graph: FunctionGraph, trace: Variable) -> list[Any]:
    """The joins that contain ``trace`` or a part of it, and slices of these joins."""
    sliced: dict[Any, bool] = {trace: False}  # whether each is more than a slice of the trace
    near = [trace]
    for _ in range(_FAR):
        clients = [(client, sliced[v]) for v in near for client, _ in graph.clients[v]]
        near = []
        for client, joined in clients[:_MANY]:
            if not isinstance(client.op, Subtensor | Join):
                continue
            (v,) = client.outputs
            if v not in sliced and v.type.ndim == trace.type.ndim:  # not a single row of it
                near.append(v)
                sliced[v] = joined or isinstance(client.op, Join)
    return [v for v, joined in sliced.items() if joined]


class _Shifted:
    """The rows of ``trace`` shifted by one: ``end`` follows if ``last``, and precedes otherwise."""

    def __init__(
        self, pieces: Pieces, trace: Variable, end: TensorVariable, n: DimExpr, last: bool
    ) -> None:
        self._pieces, row = pieces, pieces.as_row(end)
        self._start, self._count = ONE if last else NONE, n
        whole, part = Window(trace, NONE, n), Window(trace, self._start, n - 1)
        self._all = (whole, row) if last else (row, whole)
        self._rows = (part, row) if last else (row, part)

    def equal(self, rows: Rows) -> bool:
        if rows == self._rows:
            return True
        if len(rows) != 1 or not isinstance(rows[0], Window):
            return False
        window = rows[0]
        return window == Window(window.source, self._start, self._count) and (
            self._pieces.rows(window.source) == self._all
        )


def _read_traces(graph: FunctionGraph, node: Apply, matches: list[_Found]) -> None:
    loop = OpenLoop.of(node)
    at: dict[_Found, Y] = {}
    for f in matches:
        state = loop.states[f.k]
        inner = state.next if f.after else state.inner
        at[f] = next((y for y in loop.ys if y.inner is inner), None) or Y(inner)
        if at[f] not in loop.ys:
            loop.ys.append(at[f])
    replace_outputs(graph, loop.close(), "state_traces")
    pairs = {f.rows: y.new[::-1] if f.backwards else y.new for f, y in at.items()}
    replace_outputs(graph, pairs, "state_traces")
