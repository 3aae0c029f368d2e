"""What is known where a line is written: names and where they come from, lengths that are equal.

A *frame* is an open loop over steps. What follows from names that were there before it is written
before it, once: arithmetic on indices, room for arrays, and checks of lengths, which only count
where the loop takes a step. So a step allocates nothing whose size does not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from loopax.numba_backend.emit.source import Slot
from loopax.numba_backend.emit.values import Dim

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Block:
    """What has been found out in one indented block, and holds until it ends.

    ``chosen``: it is a branch, which need not run where what is around it does.
    """

    known: dict[str, str] = field(default_factory=dict)  # expression -> name
    equal: dict[str, Dim] = field(default_factory=dict)  # length -> another one that it is
    chosen: bool = False


@dataclass(frozen=True)
class Frame:
    """A loop over steps that is open.

    ``before`` is the place in front of it, ``checks`` one that is only reached where it takes a step,
    ``block`` the position of the block that it is in.
    """

    before: Slot
    checks: Slot
    block: int


class Scopes:
    """The open blocks and frames, and the level of each name: how many frames it is inside of."""

    def __init__(self) -> None:
        self.blocks = [Block()]
        self.frames: list[Frame] = []
        self.looped: set[str] = set()  # lengths of what a step loops over or keeps
        self.changing: set[str] = set()  # locals that are assigned more than once
        self.bounded: dict[str, Dim] = {}  # indices that are at least 0 and less than a length
        self.lengths: set[str] = set()  # locals that are lengths of arrays
        self.rooms: set[str] = set()  # arrays made before a loop, for each of its steps
        self._links: list[tuple[str, Dim]] = []
        self._levels: dict[str, int] = {}
        self._depths: dict[str, int] = {}  # how many blocks were open

    def mark(self) -> Any:
        return deepcopy(self.blocks), set(self.looped)

    def reset(self, mark: Any) -> None:
        self.blocks, self.looped = mark

    @property
    def depth(self) -> int:
        return len(self.frames)

    # -- names ---------------------------------------------------------------------------------

    def define(self, names: Iterable[str], level: int | None = None) -> None:
        """``names`` are assigned inside of so many frames; all that are open, if nothing is said."""
        level = self.depth if level is None else level
        open_ = self.frames[level].block + 1 if level < self.depth else len(self.blocks)
        for name in names:
            self._levels[name], self._depths[name] = level, open_

    def outside(self, shape: Iterable[Dim]) -> bool:
        """Whether lengths were there before the innermost block was opened."""
        return all(self._depths.get(str(n), 0) < len(self.blocks) for n in shape)

    def level(self, expression: Any) -> int:
        """Inside of how many frames something has to be computed."""
        return max((self._levels.get(n, 0) for n in _NAME.findall(str(expression))), default=0)

    def surely_reached_by(self, expression: str) -> Frame | None:
        """The innermost loop, where each step computes ``expression`` here and none changes it.

        Not a loop further out: it may take a step where the innermost one takes none.
        """
        if self.level(expression) >= self.depth:
            return None
        frame = self.frames[-1]
        inside = self.blocks[frame.block + 2 :]
        return None if any(block.chosen for block in inside) else frame

    def known(self, expression: str) -> str | None:
        for block in self.blocks:
            if expression in block.known:
                return block.known[expression]
        return None

    # -- lengths -------------------------------------------------------------------------------

    def canonical(self, n: Dim) -> Dim:
        """One name, or number, for all lengths that are known to be equal."""
        found = True
        while found and isinstance(n, str):
            found = False
            for block in self.blocks:
                if n in block.equal:
                    n, found = block.equal[n], True
                    break
        return n

    def same(self, a: Dim, b: Dim) -> bool:
        return self.canonical(a) == self.canonical(b)

    def same_shape(self, a: Iterable[Dim], b: Iterable[Dim]) -> bool:
        a, b = list(a), list(b)
        return len(a) == len(b) and all(map(self.same, a, b))

    def unify(self, n: str, first: Dim, block: int = -1) -> None:
        """``n`` is ``first``, from now on in the innermost block, or in a block further out."""
        self.blocks[block].equal[n] = first
        self._links.append((n, first))

    def in_steps(self) -> set[Any]:
        """The lengths of what a step loops over or keeps, and all that are equal to one of them."""
        found: set[Any] = set(self.looped)
        size = -1
        while len(found) != size:
            size = len(found)
            found |= {m for pair in self._links for m in pair if found & {*pair}}
        return {n for n in found if isinstance(n, str)}

    def order(self, n: Dim) -> tuple[int, str]:
        """Numbers first, then what is known furthest out."""
        return (-1 if isinstance(n, int) else self.level(n), str(n))
