"""The cheapest term of each class of equal terms, where a term that is used twice is paid for once.

From the leaves upwards, each class takes the term whose own cost, with that of all that it needs, is
least. What is needed is a set of classes, so that the union of two operands' sets counts what they
share once (the greedy extraction of directed acyclic graphs, as in the extraction gym of the egg
project: to find the least is NP-hard). The sets are bits of integers.

It ends, and what it takes has no cycles: what a class needs costs more than what any of its operands
needs, and the costs of classes only become less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from loopax.extensions.egraph.saturate import Node

Choice = Mapping[int, Node]


def cheapest(
    classes: Mapping[int, list[Node]],
    cost: Callable[[int, Node], float],
    preferred: Choice,
) -> dict[int, Node]:
    """The term of each class that can be built. Of equally cheap ones it is that of ``preferred``.

    ``cost`` is of a class and a term in it, and positive.
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
        """Whether ``node`` is better than what ``c`` has, which it then takes the place of."""
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
    """In how many classes each class may be an operand, 1 at the least.

    What costs a part of itself with each of them is taken where several would have to take it at once: of
    ``softplus(x)`` and ``softplus(-x)`` neither is cheaper by ``exp(-abs(x))`` alone.
    """
    found = dict.fromkeys(classes, 0)
    for nodes in classes.values():
        for operand in {operand for node in nodes for operand in node.operands}:
            found[operand] += 1
    return {c: max(n, 1) for c, n in found.items()}


def _sum(bits: int, values: Mapping[int, float]) -> float:
    found = 0.0
    while bits:
        low = bits & -bits
        found += values[low.bit_length() - 1]
        bits ^= low
    return found


def needed(choice: Choice, roots: Iterable[int]) -> list[int]:
    """The classes that ``roots`` need, each behind its operands."""
    found: dict[int, None] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        c, is_done = stack.pop()
        if is_done:
            found[c] = None
        elif c not in found:
            stack.append((c, True))
            stack += [(k, False) for k in reversed(choice[c].operands) if k not in found]
    return list(found)
