"""The smallest parts of a loop that could be separate loops.

    states that read one another, directly or through others   -> one part, a carry
    ``total' = total + f(...)``, read by nothing but itself     -> a sum, which works in either direction
    values that are emitted and feed no state                   -> a row, which has no direction at all

`fusion_plan` asks for the parts of every loop of a graph, and combines them into fewer loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import is_elementwise
from loopax.ir.ops.scan import Scan


@dataclass(eq=False)
class Atom:
    """A part of the loop of ``node``.

    ``states`` and ``ys`` are positions among the states and ys of the loop; ``rows`` and ``consts`` are
    positions of what it reads from outside. ``before`` and ``after`` are states of other parts whose
    values before or after the step it reads. ``directed`` says whether the order of the steps matters.
    """

    node: Apply
    states: tuple[int, ...]
    ys: tuple[int, ...]
    directed: bool
    rows: tuple[int, ...] = ()
    consts: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    cluster: Any = field(default=None, repr=False)

    @property
    def is_row(self) -> bool:
        return not self.states


def whole(node: Apply) -> list[Atom]:
    """The loop of ``node`` as a single part."""
    op: Any = node.op
    return [
        Atom(
            node,
            tuple(range(op.n_states)),
            tuple(range(op.n_ys)),
            directed=bool(op.n_states),
            rows=tuple(range(op.n_seqs)),
            consts=tuple(range(op.n_consts)),
        )
    ]


def atoms(node: Apply) -> list[Atom]:
    """The parts of the loop of ``node``, in topological order."""
    op: Any = node.op
    if not op.n_states or not all(isinstance(s.type, DenseTensorType) for s in op.args.states):
        return whole(node)
    args, outs = op.args, op.outs
    reads = _Reads(op.fgraph, {})
    masks = [reads.mask([v]) for v in outs.states]
    groups = _cycles([[j for j, s in enumerate(args.states) if reads.has(m, s)] for m in masks])
    place = {k: g for g, group in enumerate(groups) for k in group}
    emitted: list[list[int]] = [[] for _ in groups]
    rows: list[int] = []
    of_state = {v: k for k, v in reversed([*enumerate(outs.states)])}
    of_state |= {v: k for k, v in enumerate(args.states)}
    for y, v in enumerate(outs.ys):
        if v in of_state:
            emitted[place[of_state[v]]].append(y)
        else:
            rows.append(y)
    parts = [
        _atom(node, reads, group, emitted[g], [outs.states[k] for k in group])
        for g, group in enumerate(groups)
    ]
    for atom in parts:
        atom.directed = not _is_sum(op, atom, masks, reads)
    # A row may read the updated state, which is then not computed twice.
    state_of = {v: k for k, v in enumerate(outs.states) if v.owner is not None}
    cut = _Reads(op.fgraph, state_of)
    parts += [_atom(node, cut, (), [y], [outs.ys[y]]) for y in rows]
    # Inputs that no atom reads: the loop must still wait for them, and check the lengths of sequences.
    parts[0].rows += tuple(set(range(op.n_seqs)).difference(*(a.rows for a in parts)))
    parts[0].consts += tuple(set(range(op.n_consts)).difference(*(a.consts for a in parts)))
    return parts


def _atom(
    node: Apply,
    reads: _Reads,
    states: Sequence[int],
    ys: Sequence[int],
    outputs: Sequence[Variable],
) -> Atom:
    op: Any = node.op
    args, mask = op.args, reads.mask(outputs)

    def positions(group: Sequence[Variable]) -> tuple[int, ...]:
        return tuple(k for k, v in enumerate(group) if reads.has(mask, v))

    return Atom(
        node,
        tuple(states),
        tuple(ys),
        directed=bool(states),
        rows=positions(args.rows),
        consts=positions(args.consts),
        before=tuple(k for k in positions(args.states) if k not in states),
        after=tuple(k for v, k in reads.cut.items() if reads.has(mask, v)),
    )


class _Reads:
    """Bit masks of the inputs that each variable of a body depends on; ``cut`` count as inputs."""

    def __init__(self, body: FrozenFunctionGraph, cut: dict[Variable, int]) -> None:
        self.cut = cut
        self._bit = {v: 1 << k for k, v in enumerate([*body.inputs, *cut])}
        self._of: dict[Any, int] = dict(self._bit)
        for node in body.toposort():
            mask = 0
            for v in node.inputs:
                mask |= self._of.get(v, 0)
            for v in node.outputs:
                self._of.setdefault(v, mask)

    def mask(self, variables: Sequence[Variable]) -> int:
        mask = 0
        for v in variables:
            mask |= self._of.get(v, 0)
        return mask

    def has(self, mask: int, v: Variable) -> bool:
        return bool(mask & self._bit.get(v, 0))


def _is_sum(op: Scan, atom: Atom, masks: list[int], reads: _Reads) -> bool:
    """Whether ``atom`` is a single state ``s' = s + f`` whose final value alone is read."""
    if len(atom.states) != 1 or atom.ys:
        return False
    (k,) = atom.states
    state, node = op.args.states[k], op.outs.states[k].owner
    if any(j != k and reads.has(mask, state) for j, mask in enumerate(masks)):
        return False
    if reads.has(reads.mask(op.outs.ys), state) or node is None:
        return False
    adds = is_elementwise(node, ps.Add)
    others = [v for v in node.inputs if v is not state]
    return adds and len(others) == len(node.inputs) - 1 and not reads.has(reads.mask(others), state)


def _cycles(edges: list[list[int]]) -> list[tuple[int, ...]]:
    """The strongly connected components, each after its successors (Tarjan, 1972)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    open_: set[int] = set()
    cycles: list[tuple[int, ...]] = []

    def visit(k: int) -> None:
        order[k] = low[k] = len(order)
        stack.append(k)
        open_.add(k)
        for j in edges[k]:
            if j not in order:
                visit(j)
                low[k] = min(low[k], low[j])
            elif j in open_:
                low[k] = min(low[k], order[j])
        if low[k] == order[k]:
            group: list[int] = []
            while not group or group[-1] != k:
                group.append(stack.pop())
                open_.discard(group[-1])
            cycles.append(tuple(sorted(group)))

    for k in range(len(edges)):
        if k not in order:
            visit(k)
    return cycles
