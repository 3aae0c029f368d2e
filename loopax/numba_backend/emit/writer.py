"""Lines of a native function, and what is known where each is written: names, lengths, checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from loopax.numba_backend.emit.literals import as_dim
from loopax.numba_backend.emit.scopes import Block, Frame, Scopes
from loopax.numba_backend.emit.source import Source
from loopax.numba_backend.emit.values import Dim
from loopax.numba_backend.runtime.checks import FUNCTIONS


class Writer:
    """Writes one function. What no step of a loop changes is written before the loop.

    Parameters
    ----------
    source
        Where the lines go.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.namespace: dict[str, Any] = {"np": np, **FUNCTIONS}
        self.keys: dict[str, str] = {}  # of globals, for the cache on disk
        self.scopes = Scopes()

    def mark(self) -> Any:
        return self.source.mark(), self.scopes.mark()

    def reset(self, mark: Any) -> None:
        """Take back what was emitted since ``mark``, which was made in the same block."""
        source, scopes = mark
        self.source.reset(source)
        self.scopes.reset(scopes)

    def line(self, text: str) -> None:
        self.source.line(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.scopes.blocks.append(Block(chosen=head.startswith(("if ", "else"))))
        with self.source.block(head):
            yield
        self.scopes.blocks.pop()

    @contextmanager
    def frame(self, head: str, going: str) -> Iterator[None]:
        """A loop over steps, which takes at least one if ``going``."""
        before, checks = self.source.slot(), self.source.slot(f"if {going}:")
        frame = Frame(before, checks, len(self.scopes.blocks) - 1)
        self.scopes.frames.append(frame)
        with self.block(head):
            yield
        self.scopes.frames.pop()

    def local(self, hint: str) -> str:
        """The name of a new local."""
        name = self.source.fresh(hint)
        self.scopes.define([name])
        return name

    def temp(self, expression: str, hint: str = "t") -> str:
        """A new local that holds ``expression``."""
        name = self.local(hint)
        self.line(f"{name} = {expression}")
        return name

    def number(self, expression: str, hint: str = "k", may_raise: bool = False) -> str:
        """The same for arithmetic on indices, which is written once in a block, or before a loop.

        What ``may_raise`` stays where it is: a loop need not take a step.
        """
        scopes = self.scopes
        if known := scopes.known(expression):  # a check has no name
            return known
        level = scopes.depth if may_raise else scopes.level(expression)
        if level >= scopes.depth:
            name = self.temp(expression, hint)
            scopes.blocks[-1].known[expression] = name
            return name
        frame, name = scopes.frames[level], self.source.fresh(hint)
        frame.before.line(f"{name} = {expression}")
        scopes.define([name], level)
        scopes.blocks[frame.block].known[expression] = name
        return name

    def bind(self, thing: Any, hint: str, key: str | None = None) -> str:
        """A global of the function, for what has no source; things of equal ``key`` are equal."""
        name = self.source.fresh(hint)
        self.namespace[name] = thing
        if key is not None:
            self.keys[name] = key
        return name

    def assign(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Simultaneous assignment."""
        pairs = [(n, v) for n, v in zip(names, values, strict=True) if n != v]
        targets = {n for n, _ in pairs}
        later = [(n, self.temp(v) if v in targets else v) for n, v in pairs]
        for name, value in later:
            self.line(f"{name} = {value}")

    def check(self, expression: str) -> bool:
        """Write a call that raises or does nothing; whether it is in front of the innermost loop.

        What no step changes is asked once, before a loop that takes a step.
        """
        scopes = self.scopes
        if scopes.known(expression) is not None:
            return False
        frame = scopes.surely_reached_by(expression)
        if frame is None:
            self.line(expression)
            scopes.blocks[-1].known[expression] = ""
            return False
        frame.checks.line(expression)
        scopes.blocks[frame.block + 1].known[expression] = ""
        return True

    def agree(self, *dims: Dim) -> Dim:
        """The length that all ``dims`` are, checked where that is not known now."""
        first, *rest = sorted({self.scopes.canonical(n) for n in dims}, key=self.scopes.order)
        for n in rest:
            if isinstance(n, int):
                self.line('raise ValueError("Input dimension mismatch: two lengths differ")')
            else:
                self.equate("agree", n, first)
        return first

    def equate(self, function: str, n: str, m: Dim) -> None:
        """``function`` raises where two lengths differ: from here on they are one."""
        expression = f"{function}({n}, {m})"
        self.check(expression)
        frame = self.scopes.surely_reached_by(expression)
        self.scopes.unify(n, m, -1 if frame is None else frame.block + 1)

    def are_equal(self, *numbers: str) -> None:
        """Behind a check that says so: numbers, of which one may be a length, are equal in this block."""
        known = [self.scopes.canonical(as_dim(x)) for x in numbers]
        if len({*known}) == 2 and not {*known} & self.scopes.changing:
            first, n = sorted(known, key=self.scopes.order)
            if isinstance(n, str):
                self.scopes.unify(n, first)

    def size(self, n: Dim) -> Dim:
        """``n`` as a length, checked not to be negative."""
        if isinstance(n, int):
            if n < 0:
                self.line('raise ValueError("negative dimensions are not allowed")')
            return max(n, 0)
        if n in self.scopes.changing:
            n = self.number(f"np.int64({n})", "n")
        if n not in self.scopes.lengths:
            self.check(f"size({n})")
        return n

    def position(self, k: str, n: Dim) -> str:
        """``k``, an index into an axis of length ``n``, checked where that is not known to be right."""
        bound = self.scopes.bounded.get(k)
        if bound is not None and self.scopes.same(bound, n):
            return k
        return self.number(f"index({k}, {n})", may_raise=True)
