"""Local search on a choice of terms, one class at a time, by the cost of the whole program.

`extract.py` selects the cheapest term of each class on its own, and ignores that the program may compute a
term elsewhere anyway: it may select two halves of a function of which the whole is already there. So the
search tries all terms of each class, from the outputs downwards: it refunds the classes that no other class
needs, and pays for new ones. It never increases the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopax.extensions.egraph.extract import Choice, needed
from loopax.extensions.egraph.saturate import Node

SWEEPS = 4
_LEAST = 1e-6  # the least improvement, in nanoseconds


def refined(
    classes: Mapping[int, Sequence[Node]],
    cost: Callable[[int, Node], float],
    keeping_cost: Callable[[int, Node], float],
    start: Choice,
    pools: Sequence[Choice],
    roots: Sequence[int],
) -> tuple[dict[int, Node], float]:
    """Improve the choice ``start``; returns the new choice and its cost.

    A class that enters the program takes its term from one of ``pools``. A class with two users costs
    ``keeping_cost`` in addition.
    """
    program = _Program(cost, keeping_cost, start, roots)
    for _ in range(SWEEPS):
        before = program.total
        for c in reversed(needed(program.choice, roots)):
            if c not in program.uses or len(classes[c]) == 1:  # released meanwhile
                continue
            most = program.saved_at_most(c)
            for node in classes[c]:
                if node == program.choice[c] or cost(c, node) >= most:
                    continue
                for pool in pools:
                    if program.attempt(c, node, pool):
                        most = program.saved_at_most(c)
                        break
        if program.total > before - _LEAST:
            break
    return program.choice, program.total


class _Program:
    """The classes of a program, with their numbers of users, their terms, and the total cost."""

    def __init__(
        self,
        cost: Callable[[int, Node], float],
        keeping_cost: Callable[[int, Node], float],
        start: Choice,
        roots: Sequence[int],
    ) -> None:
        self.cost = cost
        self.keeping_cost = keeping_cost
        self.choice: dict[int, Node] = {}
        self.uses: dict[int, int] = {}
        self.total = 0.0
        for root in roots:
            self._retain(root, start)

    def saved_at_most(self, c: int) -> float:
        """The cost of ``c``, with all classes that it alone needs."""
        before = self.total
        released: dict[int, Node] = {}
        old = self.choice[c]
        for k in old.operands:
            self._release(k, released)
        saving = before - self.total + self._cost_in_use(c, old)
        for k in old.operands:
            self._retain(k, released)
        self.total = before
        return saving

    def attempt(self, c: int, node: Node, default: Choice) -> bool:
        """Select ``node`` for ``c`` if that makes the program cheaper; returns whether it does."""
        old, before = self.choice[c], self.total
        released = self._swap(c, old, node, default)
        if self.total < before - _LEAST and not self._is_cyclic(c):
            return True
        self._swap(c, node, old, released)
        self.total = before  # without accumulated rounding
        return False

    def _swap(self, c: int, old: Node, new: Node, default: Choice) -> dict[int, Node]:
        """Select ``new`` for ``c``; returns the terms of released classes."""
        released: dict[int, Node] = {}
        self.total += self._cost_in_use(c, new) - self._cost_in_use(c, old)
        self.choice[c] = new
        for k in new.operands:
            self._retain(k, default)
        for k in old.operands:
            self._release(k, released)
        return released

    def _cost_in_use(self, c: int, node: Node) -> float:
        """The cost of a term of ``c``, with its number of users."""
        return self.cost(c, node) + (self.keeping_cost(c, node) if self.uses[c] > 1 else 0.0)

    def _is_cyclic(self, c: int) -> bool:
        visited: set[int] = set()
        stack = list(self.choice[c].operands)
        while stack:
            k = stack.pop()
            if k == c:
                return True
            if k not in visited:
                visited.add(k)
                stack += self.choice[k].operands
        return False

    def _retain(self, k: int, default: Choice) -> None:
        stack = [k]
        while stack:
            k = stack.pop()
            self.uses[k] = self.uses.get(k, 0) + 1
            if self.uses[k] == 1:
                node = self.choice[k] = default[k]
                self.total += self.cost(k, node)
                stack += node.operands
            elif self.uses[k] == 2:
                self.total += self.keeping_cost(k, self.choice[k])

    def _release(self, k: int, released: dict[int, Node]) -> None:
        stack = [k]
        while stack:
            k = stack.pop()
            self.uses[k] -= 1
            if not self.uses[k]:
                del self.uses[k]
                node = released[k] = self.choice.pop(k)
                self.total -= self.cost(k, node)
                stack += node.operands
            elif self.uses[k] == 1:
                self.total -= self.keeping_cost(k, self.choice[k])
