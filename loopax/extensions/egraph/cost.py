"""Cost model of terms, in nanoseconds for each entry of a result, from measurements.

The figures come from `loopax.facts`. An access is free where it is arithmetic on positions, and
costs a gather elsewhere. Writes, products and factorizations cost by their size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor

from loopax.extensions.egraph.op_table import SCALARS, OpTable
from loopax.extensions.egraph.rules import RULES_BY_NAME, Rule
from loopax.extensions.egraph.saturate import Node, Saturated
from loopax.facts.costs import (
    ARRAY,
    COPY,
    DETERMINANT,
    GATHER,
    INVERSE,
    KEEP,
    SOLVE,
    UNKNOWN_LENGTH,
    WRITE,
    product,
)
from loopax.facts.elementwise import scalar_op_of
from loopax.facts.scalars import nanoseconds

FEW = 8  # the most entries of an array in locals, on which operations are scalar
SCALAR = 4.0  # time of a scalar operation, in entries of an array
DIGITS = 1e9  # cost of lost digits: the stable form wins at any price
LEAF = 0.01
_LAPACK = {
    "inv": INVERSE,
    **dict.fromkeys(("det", "signdet", "logdet"), DETERMINANT),
    **dict.fromkeys(("solve1", "solve2"), SOLVE),
}


def keeping_cost_of(table: OpTable, egraph: Saturated) -> Callable[[int, Node], float]:
    """The cost of a second user of an elementwise term or a gather: a write to memory, or another
    gather.
    """

    def keeping(c: int, node: Node) -> float:
        n = egraph.counts.get(c, UNKNOWN_LENGTH)
        in_a_loop = node.head.startswith("E") or _is_gather(table, node)
        return KEEP * n + ARRAY if in_a_loop and n > FEW else 0.0

    return keeping


def _is_gather(table: OpTable, node: Node) -> bool:
    free = DimShuffle, Reshape, Subtensor
    return node.head == "S" and not isinstance(table.entries[node.name].op, free)


def cost_of(table: OpTable, egraph: Saturated) -> Callable[[int, Node], float]:
    """The cost function of terms, each in a class of ``egraph``."""

    def entries(c: int) -> int:
        return egraph.counts.get(c, UNKNOWN_LENGTH)

    def lost_digits(c: int, node: Node) -> int:
        """The digits by which the best form of the class is better."""
        rules = stable_rules(c)
        best = max((rule.stable for rule in rules), default=0)
        if not best or any(rule.as_stable and rule.gives(node) for rule in rules):
            return 0
        return best - max((rule.stable for rule in rules if rule.gives(node)), default=0)

    def stable_rules(c: int) -> list[Rule]:
        rules = (RULES_BY_NAME[name] for name in egraph.used.get(c, ()))
        return [rule for rule in rules if rule.stable or rule.as_stable]

    @cache
    def cost(c: int, node: Node) -> float:
        head, name, operands = node
        if head in ("Atom", "Lit") or (
            c in egraph.constants and all(k in egraph.constants for k in operands)
        ):
            return LEAF
        n = entries(c)
        if head.startswith("E"):
            price = nanoseconds(_function(table, name)) * n
            price = price * SCALAR if n <= FEW else price + ARRAY
            return price + DIGITS * lost_digits(c, node)
        if head == "S":
            gather = GATHER * n + (ARRAY if n > FEW else 0.0)
            return gather if _is_gather(table, node) else LEAF
        return _cost_of_op(name, n, [entries(k) for k in operands])

    return cost


def _function(table: OpTable, name: str) -> Any:
    """The scalar op of an elementwise term, by name."""
    return scalar_op_of(table.named(name).op) if name in table else SCALARS[name]


def _cost_of_op(name: str, n: int, sizes: list[int]) -> float:
    if name == "dot":
        inner = (sizes[0] * sizes[1] / max(n, 1)) ** 0.5
        return product(n, inner)
    if name in _LAPACK:
        rows = max(sizes[0], 1) ** 0.5
        return _LAPACK[name](rows, sizes[-1] / rows)
    if name == "sum":
        return ARRAY + COPY * sizes[0]
    if name == "diag":
        return LEAF
    return 2 * ARRAY + WRITE * max([n, *sizes])
