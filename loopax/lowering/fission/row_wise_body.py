"""The variables of a loop body that can be computed for all rows at once, and their computation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import DenseTensorType

from loopax.facts import Structure, facts_of
from loopax.facts.elementwise import is_dear_function
from loopax.ir.ops.calling_convention import BodyArgs
from loopax.ir.ops.inner_graph_op import core_of
from loopax.lowering.fission.row_wise import is_row_wise, outputs_of_rows


class Bulk(NamedTuple):
    """The size of a row: its axes whose length is not 1, and its number of entries, None where unknown."""

    rank: int
    entries: int | None

    @classmethod
    def of(cls, v: Variable) -> Bulk:
        shape = [n for n in v.type.shape if n != 1]
        return cls(len(shape), None if None in shape else prod(shape))

    def fits(self, bound: Bulk) -> bool:
        if self.rank != bound.rank or self.entries is None or bound.entries is None:
            return self.rank <= bound.rank
        return self.entries <= bound.entries


def largest(some: Sequence[Bulk]) -> Bulk:
    rank = max((b.rank for b in some), default=0)
    entries = [b.entries for b in some if b.rank == rank]
    known = [n for n in entries if n is not None]
    return Bulk(rank, None if len(known) < len(entries) else max(known, default=1))


class RowWiseBody:
    """The variables of a body that can be computed for all rows.

    ``bulk`` is the size of the largest row or trace, if every result may be as large; None if each is
    limited by the rows that it depends on.
    """

    def __init__(
        self, args: BodyArgs, nodes: Sequence[Apply], bulk: Bulk | None, known: bool
    ) -> None:
        self.nodes, self.bulk, self.known = nodes, bulk, known
        rows = [args.i, *(v for v in args.rows if isinstance(v.type, DenseTensorType))]
        self.varies: dict[Any, bool] = dict.fromkeys(rows, True)
        self.varies |= {v: False for v in args.consts if isinstance(v.type, DenseTensorType)}
        self.read = {v: Bulk.of(v) for v in rows}  # varying variables -> rows that they depend on
        self.dear: set[Any] = set()
        self.row_wise: set[Apply] = set()
        for node in nodes:
            self._add(node)

    def __contains__(self, v: Variable) -> bool:
        return v in self.varies or isinstance(v, Constant)

    def _add(self, node: Apply) -> None:
        if not all(v in self for v in node.inputs):
            return
        if any(v in self.read for v in node.outputs):
            return  # a row that the caller reads from outside, such as the state after the step
        varies = [self.varies.get(v, False) for v in node.inputs]
        if not is_row_wise(node, varies, self.known):
            return
        result_varies = any(varies) and facts_of(node.op).structure is not Structure.SHAPE
        if result_varies:
            varying = [v for v, f in zip(node.inputs, varies, strict=True) if f]
            read = largest([self.read[v] for v in varying])
            if not all(self._fits(node, v, read) for v in node.outputs):
                return
            self.read.update(dict.fromkeys(node.outputs, read))
            if _is_dear(node) or any(v in self.dear for v in varying):
                self.dear.update(node.outputs)
        self.row_wise.add(node)
        self.varies.update(dict.fromkeys(node.outputs, result_varies))

    def _fits(self, node: Apply, v: Variable, read: Bulk) -> bool:
        if self.bulk is not None:
            return Bulk.of(v).fits(self.bulk)
        bulk = Bulk.of(v)
        return bulk.fits(read) or (bulk.rank <= read.rank and _is_product(node.op))

    def computed(self, wanted: Sequence[Variable], outside: dict[Variable, Variable]) -> list[Any]:
        """Compute ``wanted`` for all rows, given their values ``outside`` for rows and constants."""
        values = dict(outside)
        needed = set(toposort(wanted, blockers=[*values]))
        for node in self.nodes:
            if node in needed:
                inputs = [values.get(v, v) for v in node.inputs]
                values.update(zip(node.outputs, outputs_of_rows(node, inputs), strict=True))
        return [values.get(v, v) for v in wanted]


def _is_dear(node: Apply) -> bool:
    """Whether ``node`` costs more than to read a row."""
    op: Any = node.op
    if facts_of(op).structure is Structure.REDUCES or _is_product(op):
        return not _is_small(node)
    return is_dear_function(op)


# Elements that native code holds in locals. In a step a product of smaller matrices is a few operations,
# outside it is a call for all rows: the gradient of a Kalman filter of two states took 51 us outside, and
# takes 31 inside.
_FEW = 16


def is_function(node: Apply) -> bool:
    """Whether ``node`` is a function such as ``exp`` of a few numbers, which a step computes one by one."""
    if len(node.outputs) != 1:
        return False
    return entries(node.outputs[0]) <= _FEW and is_dear_function(node.op)


def is_small_product(node: Apply) -> bool:
    """Whether ``node`` multiplies small matrices, which is better done in the step."""
    return _is_product(node.op) and _is_small(node)


def _is_small(node: Apply) -> bool:
    return all(entries(v) <= _FEW for v in (*node.inputs, *node.outputs))


def entries(v: Variable) -> float:
    """The number of entries of ``v``; infinity where that is unknown."""
    shape = getattr(v.type, "shape", (None,))
    return float("inf") if None in shape else float(prod(shape))


def _is_product(op: Op) -> bool:
    return facts_of(core_of(op)).structure is Structure.CONTRACTS
