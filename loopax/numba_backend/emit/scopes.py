"""Facts that hold where a statement is written: levels of names, and equalities between lengths.

A *frame* is an open loop over steps. Expressions of names from outside are written in front of it,
once: arithmetic on indices, memory of arrays, and checks of lengths, which apply only where the loop
takes a step. So a step allocates nothing whose size does not change.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from loopax.numba_backend.emit.expressions import Dim, Expr, names_of
from loopax.numba_backend.emit.statements import Block


@dataclass
class Scope:
    """An open block, and the facts that hold until its end.

    ``chosen`` marks a branch, which may not run where its surroundings do, ``is_uniform`` one that runs for
    all elements of the loop around it or for none. For a loop, ``before`` is the place in front of it;
    ``index`` is the index of a loop over an axis; ``checks`` is the place that runs before a loop over
    steps if it takes one.
    """

    block: Block
    chosen: bool = False
    is_uniform: bool = False
    before: Block = field(default_factory=Block)
    index: Expr | None = None
    checks: Block = field(default_factory=Block)
    local_of: dict[Any, Expr] = field(default_factory=dict)  # expression -> local
    checked: set[Expr] = field(default_factory=set)  # calls of checks that have passed
    equal: dict[Expr, Dim] = field(default_factory=dict)  # length -> an equal length


class Scopes:
    """The open scopes and frames, and the level of each name: the number of frames around it."""

    def __init__(self, body: Block) -> None:
        self.open = [Scope(body)]
        self.frames: list[int] = []  # positions of their scopes
        self.looped: set[Expr] = set()  # lengths that a step loops over or stores
        self.changing: set[Dim] = set()  # locals that are assigned more than once
        self.bounded: dict[Expr, Dim] = {}  # indices that are at least 0 and less than a length
        self.lengths: set[Expr] = set()  # locals that are lengths of arrays
        self.rooms: set[Expr] = set()  # arrays allocated in front of a loop for all its steps
        self._links: list[tuple[Expr, Dim]] = []
        self._levels: dict[str, int] = {}
        self._depths: dict[str, int] = {}  # number of open scopes at the definition

    @property
    def innermost(self) -> Scope:
        return self.open[-1]

    @property
    def depth(self) -> int:
        return len(self.frames)

    # -- names ---------------------------------------------------------------------------------

    def define(self, names: Iterable[Expr], level: int | None = None) -> None:
        """Define ``names`` at ``level``, by default inside of all open frames."""
        level = self.depth if level is None else level
        open_ = self.frames[level] if level < self.depth else len(self.open)
        for name in names:
            self._levels[name.text], self._depths[name.text] = level, open_

    def outside(self, shape: Iterable[Dim]) -> bool:
        """Whether all lengths in ``shape`` were defined before the innermost scope was opened."""
        return all(self._depths.get(name, 0) < len(self.open) for name in names_of(shape))

    def level(self, *parts: Expr | int) -> int:
        """The least level at which an expression of ``parts`` can be computed."""
        return max([self._levels.get(name, 0) for name in names_of(parts)], default=0)

    def frame(self, level: int) -> tuple[Scope, Scope]:
        """The scope around a loop over steps, and the scope of the loop."""
        position = self.frames[level]
        return self.open[position - 1], self.open[position]

    def surely_reached_by(self, expression: Expr) -> Scope | None:
        """The scope of the innermost loop if each step computes ``expression`` here and none changes
        it.

        An outer loop is not a candidate: it may take a step where the innermost one takes none.
        """
        if self.level(expression) >= self.depth:
            return None
        loop, *inside = self.open[self.frames[-1] :]
        return None if any(scope.chosen for scope in inside) else loop

    def local_of(self, expression: Hashable) -> Expr | None:
        """The local that holds ``expression``."""
        return next((s.local_of[expression] for s in self.open if expression in s.local_of), None)

    def is_checked(self, call: Expr) -> bool:
        return any(call in scope.checked for scope in self.open)

    # -- lengths -------------------------------------------------------------------------------

    def canonical(self, n: Dim) -> Dim:
        """The representative, a name or number, of all lengths known to equal ``n``."""
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
        """Record that ``n`` equals ``first``, in the innermost scope or in ``scope``."""
        (scope or self.innermost).equal[n] = first
        self._links.append((n, first))

    def in_steps(self) -> set[Expr]:
        """The lengths that a step loops over or stores, and all lengths equal to one of them."""
        lengths: set[Any] = set(self.looped)
        size = -1
        while len(lengths) != size:
            size = len(lengths)
            lengths |= {m for pair in self._links for m in pair if lengths & {*pair}}
        return {n for n in lengths if isinstance(n, Expr)}

    def order(self, n: Dim) -> tuple[int, str]:
        """A sort key: numbers first, then names by level."""
        return (self.level(n), n.text) if isinstance(n, Expr) else (-1, str(n))
