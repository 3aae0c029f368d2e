"""Extraction of the cheapest term of each class, where a shared term is paid once.

From the leaves upwards, each class takes the term with the least cost, dependencies included.
Dependencies are sets of classes, so that the union of two operands' sets counts shared classes once
(the greedy extraction of directed acyclic graphs, as in the extraction gym of the egg project: the
optimum is NP-hard). The sets are bits of integers.

Termination and absence of cycles: the cost of a class exceeds the cost of each of its operands, and the
costs of classes only decrease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from loopax.extensions.egraph.saturate import Node

Choice = Mapping[int, Node]


def cheapest(
    classes: Mapping[int, list[Node]], cost: Callable[[int, Node], float], preferred: Choice
) -> dict[int, Node]:
    """The cheapest term of each class that can be built; ties go to ``preferred``.

    ``cost`` maps a class and a term in it to a positive number.
    """
    users: dict[int, list[tuple[int, Node]]] = {}
    for c, nodes in classes.items():
        for node in nodes:
            for operand in set(node.operands):
                users.setdefault(operand, []).append((c, node))
    own: dict[int, float] = {}
    total: dict[int, float] = {}
    needs: dict[int, int] = {}
    choice: dict[int, Node] = {}

    def offer(c: int, node: Node) -> bool:
        """Select ``node`` for ``c`` if it is better; returns whether anything changed."""
        paid, price = 0, cost(c, node)
        sum_of_all = price
        for operand in sorted(set(node.operands), key=lambda k: -total[k]):
            if needs[operand] >> c & 1:
                return False
            if not paid:
                paid, sum_of_all = needs[operand], price + total[operand]
                continue
            new = needs[operand] & ~paid
            paid |= new
            sum_of_all += _sum(new, own)
        if c in total:
            worse = sum_of_all > total[c] * (1 - 1e-9)
            tie = sum_of_all < total[c] * (1 + 1e-9) and node == preferred.get(c) != choice[c]
            if worse and not tie:
                return False
        changed = choice.get(c) != node or sum_of_all < total[c] * (1 - 1e-9)
        own[c], total[c], needs[c], choice[c] = price, sum_of_all, paid | 1 << c, node
        return changed

    waiting = deque(
        (c, node) for c, nodes in classes.items() for node in nodes if not node.operands
    )
    while waiting:
        c, node = waiting.popleft()
        if all(k in total for k in node.operands) and offer(c, node):
            waiting.extend(users.get(c, ()))
    return choice


def users_of(classes: Mapping[int, list[Node]]) -> dict[int, int]:
    """The number of classes in which each class may be an operand, at least 1.

    With costs divided by these numbers, a term can be selected that pays off only for several users
    together: neither ``softplus(x)`` nor ``softplus(-x)`` alone is cheaper by ``exp(-abs(x))``.
    """
    counts = dict.fromkeys(classes, 0)
    for nodes in classes.values():
        for operand in {operand for node in nodes for operand in node.operands}:
            counts[operand] += 1
    return {c: max(n, 1) for c, n in counts.items()}


def _sum(bits: int, values: Mapping[int, float]) -> float:
    total = 0.0
    while bits:
        low = bits & -bits
        total += values[low.bit_length() - 1]
        bits ^= low
    return total


def needed(choice: Choice, roots: Iterable[int]) -> list[int]:
    """The classes that ``roots`` depend on, each after its operands."""
    ordered: dict[int, None] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        c, is_done = stack.pop()
        if is_done:
            ordered[c] = None
        elif c not in ordered:
            stack.append((c, True))
            stack += [(k, False) for k in reversed(choice[c].operands) if k not in ordered]
    return list(ordered)
