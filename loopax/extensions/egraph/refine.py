"""A choice of terms made better, one class at a time, by what the whole program then costs.

What `extract.py` takes is the cheapest for each class by itself. That something is needed in another place
anyway, it does not see: two halves of a function may be taken for the whole of it that is there
already. So each class is asked once more, with all its terms, from the outputs downwards: what only it
needs is given back, what a term needs and nobody has yet is paid. It is local search, and never makes
anything worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopax.extensions.egraph.extract import Choice, needed
from loopax.extensions.egraph.saturate import Node

SWEEPS = 4
_LEAST = 1e-6  # nanoseconds that are an improvement


def refined(
    classes: Mapping[int, Sequence[Node]],
    cost: Callable[[int, Node], float],
    kept: Callable[[int, Node], float],
    start: Choice,
    others: Sequence[Choice],
    roots: Sequence[int],
) -> tuple[dict[int, Node], float]:
    """A choice that is no dearer than ``start``, and what it costs.

    A class that nobody needed so far takes the term that one of ``others`` has. One that two need costs
    what ``kept`` says besides.
    """
    program = _Program(cost, kept, start, roots)
    for _ in range(SWEEPS):
        before = program.total
        for c in reversed(needed(program.choice, roots)):
            if c not in program.uses or len(classes[c]) == 1:  # given back meanwhile
                continue
            most = program.saved_at_most(c)
            for node in classes[c]:
                if node == program.choice[c] or cost(c, node) >= most:
                    continue
                for other in others:
                    if program.attempt(c, node, other):
                        most = program.saved_at_most(c)
                        break
        if program.total > before - _LEAST:
            break
    return program.choice, program.total


class _Program:
    """The classes that a program needs, how often, by which terms, and what they cost together."""

    def __init__(
        self,
        cost: Callable[[int, Node], float],
        kept: Callable[[int, Node], float],
        start: Choice,
        roots: Sequence[int],
    ) -> None:
        self.cost = cost
        self.kept = kept
        self.choice: dict[int, Node] = {}
        self.uses: dict[int, int] = {}
        self.total = 0.0
        for root in roots:
            self._retain(root, start)

    def saved_at_most(self, c: int) -> float:
        """What ``c`` costs, with all that only it needs."""
        before = self.total
        given_back: dict[int, Node] = {}
        old = self.choice[c]
        for k in old.operands:
            self._release(k, given_back)
        found = before - self.total + self._own(c, old)
        for k in old.operands:
            self._retain(k, given_back)
        self.total = before
        return found

    def attempt(self, c: int, node: Node, default: Choice) -> bool:
        """Whether the program is cheaper with ``node`` for ``c``, which it then has."""
        old, before = self.choice[c], self.total
        given_back = self._swap(c, old, node, default)
        if self.total < before - _LEAST and not self._is_cyclic(c):
            return True
        self._swap(c, node, old, given_back)
        self.total = before  # no rounding is left over
        return False

    def _swap(self, c: int, old: Node, new: Node, default: Choice) -> dict[int, Node]:
        """Take ``new`` for ``c``; the terms of what nobody needs any more."""
        given_back: dict[int, Node] = {}
        self.total += self._own(c, new) - self._own(c, old)
        self.choice[c] = new
        for k in new.operands:
            self._retain(k, default)
        for k in old.operands:
            self._release(k, given_back)
        return given_back

    def _own(self, c: int, node: Node) -> float:
        """What a term costs that is needed as often as ``c`` is."""
        return self.cost(c, node) + (self.kept(c, node) if self.uses[c] > 1 else 0.0)

    def _is_cyclic(self, c: int) -> bool:
        seen: set[int] = set()
        stack = list(self.choice[c].operands)
        while stack:
            k = stack.pop()
            if k == c:
                return True
            if k not in seen:
                seen.add(k)
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
                self.total += self.kept(k, self.choice[k])

    def _release(self, k: int, given_back: dict[int, Node]) -> None:
        stack = [k]
        while stack:
            k = stack.pop()
            self.uses[k] -= 1
            if not self.uses[k]:
                del self.uses[k]
                node = given_back[k] = self.choice.pop(k)
                self.total -= self.cost(k, node)
                stack += node.operands
            elif self.uses[k] == 1:
                self.total -= self.kept(k, self.choice[k])
