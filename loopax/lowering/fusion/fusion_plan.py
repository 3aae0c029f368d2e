"""Plan which parts of loops share one loop; `fuse_loops` carries it out.

Loops over the same steps in the same direction form a *cluster*, if no part needs a result that another has
only at the end of the loop. Two sets of clusters for every variable of the graph decide that:

    depends on   the variable is computed from them
    needs whole  its row t needs more than their steps up to t

A part joins a cluster unless one of its inputs needs that cluster whole, or another cluster that it depends
on needs the cluster's loop to have run before. Rows that feed no state, and row-wise computations between
loops, belong to no cluster at first: a part that reads them takes them into its loop.

A part joins the first cluster that it fits in, and those it depends on are tried first. The number of
clusters is not always minimal: Kennedy and McKinley (1993) show that to be NP-hard.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from loopax.facts.rows import row_wise_inputs, stands_for_all_rows
from loopax.ir import Scan
from loopax.ir.sizes import dims_of, unconditional_dims_of
from loopax.lowering.analysis.atoms import Atom
from loopax.lowering.analysis.checked_steps import is_checked

# The row of a trace that may have no variable: (loop, "before" or "after", state).
RowKey = tuple[Apply, str, int]


class Cluster:
    """Parts that become one loop with the steps of ``key``; ``reverse`` is None while both orders work."""

    def __init__(self, number: int, key: Hashable, node: Apply) -> None:
        self.bit = 1 << number
        self.key, self.node = key, node
        self.reverse: bool | None = None
        self.n_steps: Any = node.inputs[0]
        # In topological order. A node is computed row by row.
        self.parts: dict[Atom | Apply, None] = {}
        self.needs = 0  # bit mask of the clusters that it depends on, directly or indirectly

    @property
    def atoms(self) -> list[Atom]:
        return [p for p in self.parts if isinstance(p, Atom)]

    @property
    def has_states(self) -> bool:
        """Whether it is a loop from step to step, not one for rows that no other loop has taken."""
        return any(a.states for a in self.atoms)

    @property
    def is_one_loop(self) -> bool:
        """Whether it is exactly the loop it began with."""
        op: Any = self.node.op
        of_it = [a for a in self.atoms if a.node is self.node]
        n = sum(len(a.states) + len(a.ys) for a in of_it)
        return len(of_it) == len(self.parts) and n == op.n_states + op.n_ys


def can_be_fused(op: Op) -> bool:
    """Whether the loop ``op`` takes all its steps, and its derivative goes through all of them."""
    return isinstance(op, Scan) and not op.stops and op.options.truncate_gradient < 0


class Plan:
    """The clusters of ``graph``, whose loops consist of the parts that ``parts`` returns."""

    def __init__(self, graph: FunctionGraph, parts: Callable[[Apply], list[Atom]]) -> None:
        self.clusters: list[Cluster] = []
        self._dims, self._unconditional = dims_of(graph), unconditional_dims_of(graph)
        self._checks: dict[
            Any, bool
        ] = {}  # whether a number of steps is checked where it is computed
        self._by_key: dict[Any, list[Cluster]] = {}
        self._of_node: dict[Apply, dict[Cluster, None]] = {}  # loop -> clusters with parts of it
        self._masks: dict[Any, tuple[int, int]] = {}
        self._rows: dict[Any, Atom] = {}  # traces of rows that have no cluster yet -> their atoms
        for node in graph.toposort():
            if can_be_fused(node.op):
                self._loop(node, parts(node))
            else:
                self._other(node)
        for atom in [*self._rows.values()]:
            if atom.cluster is None:
                self._settle(atom)

    def depends(self, v: Variable | RowKey, cluster: Cluster) -> bool:
        """Whether ``v``, a variable or a `RowKey`, depends on ``cluster``."""
        return bool(self._mask(v)[0] & cluster.bit)

    # -- the sweep -------------------------------------------------------------------------------

    def _mask(self, v: Variable | RowKey) -> tuple[int, int]:
        return self._masks.get(v, (0, 0))

    def _other(self, node: Apply) -> None:
        needs = whole = 0
        own = self._rows_read(node)
        for k, v in enumerate(node.inputs):
            depends, w = self._mask(v)
            needs |= depends
            whole |= w if k in own and not stands_for_all_rows(v) else depends
        for v in node.outputs:
            if needs:
                self._masks[v] = (needs, whole if own else needs)

    def _rows_read(self, node: Apply) -> list[int]:
        """The inputs from whose rows a loop can compute ``node`` row by row; empty if it cannot."""
        own = row_wise_inputs(node)
        if not own or len(own) == len(node.inputs):
            return own
        n = self._dims.length(node.outputs[0])  # the number of rows that it produces
        return own if all(self._dims.length(node.inputs[k]) == n for k in own) else []

    def _loop(self, node: Apply, parts: list[Atom]) -> None:
        op: Any = node.op
        key = self._key(node)
        for atom in parts:
            depends, whole = self._read(atom)
            own_whole = whole
            if atom.is_row and depends:
                # Only a loop over the same steps can compute it; other loops must wait for its own loop.
                depends |= self._mask(node.inputs[0])[0]
                whole |= depends
                for c in self._by_key.get(key, ()):
                    if c.bit & depends & ~own_whole and self._may_take(c.n_steps, node.inputs[0]):
                        whole &= ~c.bit
                for y in atom.ys:
                    trace = node.outputs[op.n_states + y]
                    self._masks[trace] = (depends, whole)
                    self._rows[trace] = atom
                continue
            self._place(atom, key, depends, whole)
            depends |= atom.cluster.bit | atom.cluster.needs
            rows = (depends, depends & ~atom.cluster.bit)
            for k in atom.states:
                self._masks[node.outputs[k]] = (depends, depends)
                self._masks[node, "before", k] = self._masks[node, "after", k] = rows
            for y in atom.ys:
                self._masks[node.outputs[op.n_states + y]] = rows

    def _read(self, atom: Atom) -> tuple[int, int]:
        """Masks of clusters that ``atom`` depends on, and that it needs whole, without its trip count."""
        op: Any = atom.node.op
        operands = op.split_inputs(atom.node.inputs)
        depends = whole = 0
        for v in row_inputs(atom):
            d, w = self._mask(v)
            depends |= d
            whole |= w
        for v in [
            *(operands.states[k] for k in atom.states),
            *(operands.consts[k] for k in atom.consts),
        ]:
            whole |= self._mask(v)[0]
        return depends | whole, whole

    # -- clusters --------------------------------------------------------------------------------

    def _place(self, atom: Atom, key: Hashable, depends: int, whole: int) -> None:
        candidates = self._by_key.setdefault(key, [])
        # Those it depends on first, the latest before the others.
        near = [c for c in reversed(candidates) if c.bit & depends]
        far = [c for c in candidates if not c.bit & depends]
        before = self._before(depends)
        for cluster in [*near, *far]:
            if self._join(atom, cluster, depends, whole, before):
                return
        candidates.append(self._new(atom, key, depends))

    def _new(self, atom: Atom, key: Hashable, depends: int) -> Cluster:
        cluster = Cluster(len(self.clusters), key, atom.node)
        self.clusters.append(cluster)
        self._add(atom, cluster, depends | self._mask(cluster.n_steps)[0])
        return cluster

    def _join(self, atom: Atom, cluster: Cluster, depends: int, whole: int, before: int) -> bool:
        """Make ``atom`` part of ``cluster``, with the rows that it reads, if that is possible.

        ``before`` is the mask of clusters that have to run before one that ``atom`` depends on.
        """
        op: Any = atom.node.op
        if atom.directed and cluster.reverse not in (None, op.options.reverse):
            return False
        if (whole | before) & cluster.bit:
            return False
        if not self._may_take(cluster.n_steps, atom.node.inputs[0]):
            return False
        self._add(atom, cluster, depends)
        return True

    def _add(self, atom: Atom, cluster: Cluster, depends: int) -> None:
        op: Any = atom.node.op
        if atom.directed:
            cluster.reverse = op.options.reverse
        for v in row_inputs(atom):
            self._take(v, cluster)
        self._put(atom, cluster)
        depends &= ~cluster.bit
        new = depends | self._before(depends)
        if new & ~cluster.needs:
            for other in self.clusters:
                if other is cluster or other.needs & cluster.bit:
                    other.needs |= new

    def _put(self, atom: Atom, cluster: Cluster) -> None:
        cluster.parts[atom] = None
        atom.cluster = cluster
        self._of_node.setdefault(atom.node, {})[cluster] = None

    def _before(self, mask: int) -> int:
        """The mask of clusters that the clusters in ``mask`` need."""
        needed = 0
        while mask:
            cluster = self.clusters[mask.bit_length() - 1]
            needed |= cluster.needs
            mask &= ~cluster.bit
        return needed

    def _take(self, v: Variable | RowKey, cluster: Cluster) -> None:
        """Move the row-wise computations behind ``v`` into ``cluster``, as far as they depend on it."""
        stack: list[Any] = [(v, False)]
        while stack:
            v, done = stack.pop()
            if not self.depends(v, cluster):
                continue
            atom = self._rows.get(v)
            if atom is not None:
                if atom.cluster is not None:
                    continue
                if done:
                    self._put(atom, cluster)
                else:
                    stack.append((v, True))
                    stack += [(x, False) for x in row_inputs(atom)]
            elif (
                isinstance(v, Variable)
                and v.owner is not None
                and (own := self._rows_read(v.owner))
            ):
                if v.owner in cluster.parts:
                    continue
                if done:
                    cluster.parts[v.owner] = None
                else:
                    stack.append((v, True))
                    stack += [(v.owner.inputs[k], False) for k in own]

    def _settle(self, atom: Atom) -> None:
        """Assign a row that no loop has taken to a loop it depends on, else to a loop without states."""
        depends, whole = self._read(atom)
        before = self._before(depends)
        key = self._key(atom.node)
        near = {c: None for c in self._of_node.get(atom.node, ()) if c.key == key}
        for cluster in [*near, *self._by_key.get(key, ())]:
            if cluster.bit & depends and self._join(atom, cluster, depends, whole, before):
                return
        self._new(atom, (None,), depends)

    def _key(self, node: Apply) -> Any:
        """A key that loops share if they may become one: the trip count, and the execution options."""
        op: Any = node.op
        options = op.options
        steps = self._dims.value(node.inputs[0])
        return steps, options.unroll, options.checkpoint, options.parallel

    def _may_take(self, n_steps: Variable, own: Variable) -> bool:
        """Whether a loop of ``own`` steps may use ``n_steps``, an equal number, instead.

        If so, ``own`` has no check and no error for a negative number that would get lost.
        """
        if n_steps is own:
            return True
        if self._is_checked(n_steps) or self._is_checked(own):
            return False
        dims = self._unconditional
        expr = dims.value(own)
        return dims.value(n_steps) == expr or dims.at_least(expr)

    def _is_checked(self, n_steps: Variable) -> bool:
        if n_steps not in self._checks:
            self._checks[n_steps] = is_checked(n_steps)
        return self._checks[n_steps]


def row_inputs(atom: Atom) -> list[Any]:
    """The arrays of which ``atom`` reads one row per step: outer variables and `RowKey`."""
    op: Any = atom.node.op
    sequences = op.split_inputs(atom.node.inputs).sequences
    return [
        *(sequences[k] for k in atom.rows),
        *((atom.node, "before", k) for k in atom.before),
        *((atom.node, "after", k) for k in atom.after),
    ]
