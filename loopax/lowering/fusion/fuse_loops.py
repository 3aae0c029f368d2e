"""Loops over the same steps in the same direction -> one loop.

    xs = loop(x)                      xs, m = loop(x, m with xs at this step)
    m = loop(m, over xs)        ->    dx, _ = loop back(l, v with 2 * m * l at this step)
    ls = loop back(l, over xs)
    v = loop back(v, over 2 * m * ls)

Loops fuse if none needs a result that another has only at its end: if they are independent of one another,
or one reads a trace of the other at the same step, directly or through row-wise computations. If that gives
fewer loops, a loop is first split (`loopax.lowering.analysis.atoms`): the pullback of a pullback holds a
carry that only needs the first loop, and rows that need the second.

Condition: the same number of steps (`Dims` says so), no stop condition, no truncated gradient, equal
options.

Reason: each derivative doubles the number of loops: 2, 4, 8. Their carries are of two kinds: derivatives of
the states, which go forwards and need only the states, and cotangents, which go backwards and need both. So
two loops suffice, for any order.

No conflict with `split_loops`: this pass runs first. It splits a loop only to end with fewer; computations
left in a loop that feed no state leave it in `split_loops`, and a row that connects two loops feeds a state
from here on.

In the literature: loop fusion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.type import Type
from pytensor.tensor.extra_ops import squeeze

from loopax.facts.rows import row_of, stands_for_all_rows
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.replace import replaced
from loopax.lowering.analysis.atoms import Atom, atoms, whole
from loopax.lowering.bodies import map_bodies
from loopax.lowering.fusion.fusion_plan import Cluster, Plan, RowKey, can_be_fused, row_inputs
from loopax.lowering.open_loop import Input, OpenLoop, State, Y, replace_outputs


def fuse_loops(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    if sum(can_be_fused(node.op) for node in graph.apply_nodes) > 1:
        plan = Plan(graph, whole)
        if len(plan.clusters) > 1:
            parts = Plan(graph, atoms)
            if len(parts.clusters) < len(plan.clusters):
                plan = parts
        _carry_out(graph, plan)
    map_bodies(graph, fuse_loops)


def _carry_out(graph: FunctionGraph, plan: Plan) -> None:
    changed = [c for c in plan.clusters if not c.is_one_loop]
    inner_rows: dict[RowKey, Any] = {}
    # A loop that depends on others comes after them, because it needs a superset of their needs. Rows that
    # no loop has taken are not among the needs of their readers, whose other needs may be equal to theirs.
    ordered = sorted(changed, key=lambda c: (c.needs.bit_count(), c.has_states))
    wanted = _read_elsewhere(plan) if changed else {}
    new = [_Fused(cluster).outputs(wanted[cluster], inner_rows) for cluster in ordered]
    # Replace in reverse order: a new loop reads the old loops before it until they are replaced, and would
    # bring back loops that are already gone.
    for pairs in reversed(new):
        replace_outputs(graph, pairs, "fuse_loops")


def _read_elsewhere(plan: Plan) -> dict[Cluster, list[RowKey]]:
    """The rows of states that one cluster makes and another reads, as when a loop has been split."""
    cluster_of = {(a.node, k): c for c in plan.clusters for a in c.atoms for k in a.states}
    wanted: dict[Cluster, dict[RowKey, None]] = {c: {} for c in plan.clusters}
    for reader in plan.clusters:
        for atom in reader.atoms:
            for v in row_inputs(atom):
                if isinstance(v, tuple) and (maker := cluster_of[v[0], v[2]]) is not reader:
                    wanted[maker][v] = None
    return {c: [*keys] for c, keys in wanted.items()}


class _Fused:
    """The loop of one cluster. Outputs that nothing reads are left to `remove_unused`."""

    def __init__(self, cluster: Cluster) -> None:
        op: Any = cluster.node.op
        reverse = op.options.reverse if cluster.reverse is None else cluster.reverse
        self._cluster = cluster
        self._loop = OpenLoop(
            cluster.n_steps,
            INDEX_TYPE(),
            [],
            [],
            [],
            [],
            None,
            op.options._replace(reverse=reverse),
        )
        self._rows: dict[Any, Any] = {}  # outer variables and row keys -> their row at this step
        self._consts: dict[Any, Any] = {}
        self._bodies: dict[Apply, Any] = {}

    def outputs(self, wanted: list[RowKey], inner_rows: dict[RowKey, Any]) -> dict[Any, Any]:
        """Replacements of the old outputs; traces of ``wanted`` rows are added to ``inner_rows``."""
        for atom in self._cluster.atoms:
            op: Any = atom.node.op
            for k in atom.states:
                inner, init = op.args.states[k].type(), atom.node.inputs[1 + op.n_seqs + k]
                self._loop.states.append(State(inner, init, None, atom.node.outputs[k]))
                self._rows[atom.node, "before", k] = inner
        nexts = iter(self._loop.states)
        for part in self._cluster.parts:
            if isinstance(part, Atom):
                self._atom(part, nexts, inner_rows)
            else:
                self._node(part)
        rows = {key: Y(self._rows[key]) for key in wanted}
        self._loop.ys += rows.values()
        self._merge()
        pairs = self._loop.close()
        inner_rows |= {key: y.new for key, y in rows.items()}
        return pairs

    def _atom(self, atom: Atom, nexts: Iterator[Any], inner_rows: dict[RowKey, Any]) -> None:
        node, op = atom.node, cast("Any", atom.node.op)
        if node not in self._bodies:
            self._bodies[node] = op.unfrozen()
        body = self._bodies[node]
        args, outs = op.split_body_inputs(body.inputs), op.split_body_outputs(body.outputs)
        operands, results = op.split_inputs(node.inputs), op.split_outputs(node.outputs)
        here = {args.i: self._loop.i}
        for k in atom.rows:
            here[args.rows[k]] = self._row(
                operands.sequences[k], operands.sequences[k], args.rows[k].type
            )
        for k in atom.consts:
            here[args.consts[k]] = self._const(operands.consts[k], args.consts[k].type)
        for k in atom.states:
            here[args.states[k]] = self._rows[node, "before", k]
        for which, positions, group in (
            ("before", atom.before, args.states),
            ("after", atom.after, outs.states),
        ):
            for k in positions:
                key = (node, which, k)
                here[group[k]] = self._row(key, inner_rows.get(key), args.states[k].type)
        new = replaced(
            [*(outs.states[k] for k in atom.states), *(outs.ys[y] for y in atom.ys)], here
        )
        for k, v in zip(atom.states, new, strict=False):
            state = next(nexts)
            state.next = self._rows[node, "after", k] = state.inner.type.filter_variable(v)
        for y, v in zip(atom.ys, new[len(atom.states) :], strict=True):
            self._emit(v, results.traces[y])

    def _node(self, node: Apply) -> None:
        """Compute ``node``, which acts on all rows, for the row of this step."""

        def row(v: Variable) -> Any:
            kind = v.type.clone(shape=v.type.shape[1:])
            if stands_for_all_rows(v) and v not in self._rows:
                return self._const(squeeze(v, axis=0), kind, v)
            return self._row(v, v, kind)

        self._emit(row_of(node, row, lambda v: self._const(v, v.type)), node.outputs[0])

    def _emit(self, inner: Variable, trace: Variable) -> None:
        self._rows[trace] = inner
        self._loop.ys.append(Y(inner, trace))

    def _row(self, key: Variable | RowKey, outer: Variable | None, kind: Type) -> Any:
        """The row of this step, of type ``kind``: computed in this loop, or read from ``outer``."""
        if key not in self._rows:
            inner = self._rows[key] = kind()
            self._loop.rows.append(Input(inner, outer))
        return _as(kind, self._rows[key])

    def _const(self, outer: Variable, kind: Type, key: Variable | None = None) -> Any:
        key = outer if key is None else key
        if key not in self._consts:
            inner = self._consts[key] = kind()
            self._loop.consts.append(Input(inner, outer))
        return _as(kind, self._consts[key])

    def _merge(self) -> None:
        """Merge equal computations of the fused loops."""
        loop = self._loop
        body = FunctionGraph(loop.inner.flat(), loop.outputs(), clone=False)
        MergeOptimizer().rewrite(body)
        loop.set_outputs(body.outputs)


def _as(kind: Type, v: Variable) -> Any:
    return v if kind.is_super(v.type) else kind.filter_variable(v)
