"""What is known where a statement is written: names and where they come from, lengths that are equal.

A *frame* is an open loop over steps. What follows from names that were there before it is written
before it, once: arithmetic on indices, room for arrays, and checks of lengths, which only count
where the loop takes a step. So a step allocates nothing whose size does not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from loopax.numba_backend.emit.expressions import Dim, Expr, names_of
from loopax.numba_backend.emit.statements import Block


@dataclass
class Scope:
    """A block that is written to, and what has been found out in it, which holds until it ends.

    ``chosen``: it is a branch, which need not run where what is around it does. Of a loop, ``before`` is
    the place in front of it; ``index`` is that of a loop over an axis, ``checks`` the place that is reached
    if a loop over steps takes one.
    """

    block: Block
    chosen: bool = False
    before: Block = field(default_factory=Block)
    index: Expr | None = None
    checks: Block = field(default_factory=Block)
    known: dict[Any, Expr] = field(default_factory=dict)  # expression -> local
    checked: set[Expr] = field(default_factory=set)  # calls that have not raised
    equal: dict[Expr, Dim] = field(default_factory=dict)  # length -> another one that it is


class Scopes:
    """The open scopes and frames, and the level of each name: how many frames it is inside of."""

    def __init__(self, body: Block) -> None:
        self.open = [Scope(body)]
        self.frames: list[int] = []  # the positions of their scopes
        self.looped: set[Expr] = set()  # lengths of what a step loops over or keeps
        self.changing: set[Dim] = set()  # locals that are assigned more than once
        self.bounded: dict[Expr, Dim] = {}  # indices that are at least 0 and less than a length
        self.lengths: set[Expr] = set()  # locals that are lengths of arrays
        self.rooms: set[Expr] = set()  # arrays made before a loop, for each of its steps
        self._links: list[tuple[Expr, Dim]] = []
        self._levels: dict[str, int] = {}
        self._depths: dict[str, int] = {}  # how many scopes were open

    @property
    def innermost(self) -> Scope:
        return self.open[-1]

    @property
    def depth(self) -> int:
        return len(self.frames)

    # -- names ---------------------------------------------------------------------------------

    def define(self, names: Iterable[Expr], level: int | None = None) -> None:
        """``names`` are assigned inside of so many frames; all that are open, if nothing is said."""
        level = self.depth if level is None else level
        open_ = self.frames[level] if level < self.depth else len(self.open)
        for name in names:
            self._levels[name.text], self._depths[name.text] = level, open_

    def outside(self, shape: Iterable[Dim]) -> bool:
        """Whether lengths were there before the innermost scope was opened."""
        return all(self._depths.get(name, 0) < len(self.open) for name in names_of(shape))

    def level(self, *parts: Any) -> int:
        """Inside of how many frames something has to be computed that reads these."""
        return max([self._levels.get(name, 0) for name in names_of(parts)], default=0)

    def frame(self, level: int) -> tuple[Scope, Scope]:
        """The scope around a loop over steps, and its own."""
        position = self.frames[level]
        return self.open[position - 1], self.open[position]

    def surely_reached_by(self, expression: Expr) -> Scope | None:
        """The innermost loop, where each step computes ``expression`` here and none changes it.

        Not a loop further out: it may take a step where the innermost one takes none.
        """
        if self.level(expression) >= self.depth:
            return None
        loop, *inside = self.open[self.frames[-1] :]
        return None if any(scope.chosen for scope in inside) else loop

    def known(self, expression: Any) -> Expr | None:
        """The local that holds ``expression``."""
        return next((s.known[expression] for s in self.open if expression in s.known), None)

    def is_checked(self, call: Expr) -> bool:
        return any(call in scope.checked for scope in self.open)

    # -- lengths -------------------------------------------------------------------------------

    def canonical(self, n: Dim) -> Dim:
        """One name, or number, for all lengths that are known to be equal."""
        while isinstance(n, Expr):
            other = next((scope.equal[n] for scope in self.open if n in scope.equal), None)
            if other is None:
                break
            n = other
        return n

    def same(self, a: Dim, b: Dim) -> bool:
        return self.canonical(a) == self.canonical(b)

    def same_shape(self, a: Iterable[Dim], b: Iterable[Dim]) -> bool:
        a, b = list(a), list(b)
        return len(a) == len(b) and all(map(self.same, a, b))

    def unify(self, n: Expr, first: Dim, scope: Scope | None = None) -> None:
        """``n`` is ``first``, from now on in the innermost scope, or in one further out."""
        (scope or self.innermost).equal[n] = first
        self._links.append((n, first))

    def in_steps(self) -> set[Expr]:
        """The lengths of what a step loops over or keeps, and all that are equal to one of them."""
        found: set[Any] = set(self.looped)
        size = -1
        while len(found) != size:
            size = len(found)
            found |= {m for pair in self._links for m in pair if found & {*pair}}
        return {n for n in found if isinstance(n, Expr)}

    def order(self, n: Dim) -> tuple[int, str]:
        """Numbers first, then what is known furthest out."""
        return (self.level(n), n.text) if isinstance(n, Expr) else (-1, str(n))
