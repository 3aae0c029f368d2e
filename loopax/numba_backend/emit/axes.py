"""Loops over the axes of arrays, and what is computed in front of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

import numpy as np

from loopax.numba_backend.emit.expressions import Dim, Expr, Index
from loopax.numba_backend.emit.statements import Assign, Function
from loopax.numba_backend.emit.values import Position, is_small, is_static
from loopax.numba_backend.emit.writer import Writer


class Axes(Writer):
    """A writer of loops over axes.

    Parameters
    ----------
    source
        The function, without statements yet.
    largest
        How many elements an array of static shape may have to be held in locals, one for each.
    """

    def __init__(self, source: Function, largest: int) -> None:
        super().__init__(source)
        self.largest = largest
        self.axes: dict[Expr, tuple[int, int]] = {}  # lengths: the argument and axis that has it

    def is_small(self, shape: Sequence[Dim]) -> bool:
        """Whether an array of this shape is held in locals."""
        return is_small(shape, self.largest)

    @contextmanager
    def loops(self, shape: Sequence[Dim]) -> Iterator[list[list[Index]]]:
        """Nested loops over ``shape``; the indices to write for inside of them.

        Trailing axes that are small and static are not looped over: there is an index for each.
        """
        inner = len(shape)
        while inner and self.is_small(shape[inner - 1 :]):
            inner -= 1
        tails = list(np.ndindex(*shape[inner:]))  # type: ignore[arg-type]
        with ExitStack() as stack:
            head: list[Index] = [
                0 if n == 1 else stack.enter_context(self.loop_over(n)) for n in shape[:inner]
            ]
            yield [[*head, *tail] for tail in tails]

    @contextmanager
    def loop_over(self, n: Dim) -> Iterator[Expr]:
        """A loop over an axis of length ``n``; its index."""
        index = self.local("i")
        self.note_length(n)
        with self.repeated(index, n, before=self.place(), index=index):
            yield index

    @contextmanager
    def loop_over_positions(self, shape: Sequence[Dim]) -> Iterator[Position]:
        """One loop over all elements of arrays of this shape that lie in memory in C order."""
        with self.loop_over(self.product(shape)) as index:
            yield Position(index)

    def note_length(self, n: Dim) -> None:
        """A step loops over ``n``: worth knowing, where it is small."""
        if self.scopes.frames and isinstance(n, Expr):
            self.scopes.looped.add(n)

    def product(self, shape: Sequence[Dim]) -> Dim:
        """The number of elements of an array."""
        known = int(np.prod([n for n in shape if isinstance(n, int)], dtype=int))
        if known == 0:
            return 0
        return self.number(prod([n for n in shape if isinstance(n, Expr)], start=1) * known, "n")

    @property
    def is_in_elements(self) -> bool:
        """Whether what is written now runs for each element of a loop over axes, in no branch or step."""
        return self.scopes.innermost.index is not None

    def loop_over_others(self, at: Sequence[Index]) -> int | None:
        """The outermost of the innermost loops, one inside of the other, over other indices than ``at``.

        As the position of its scope.
        """
        scopes, found = self.scopes.open, None
        known = {scope.index for scope in scopes}
        if not all(isinstance(i, int) or i in known for i in at):
            return None  # an index that has been computed may follow from any
        for k, scope in reversed([*enumerate(scopes)]):
            if scope.index is None or scope.index in at:
                break
            found = k
        return found

    def before_loop(self, loop: int, value: Expr, at: Sequence[Index], hint: str) -> Expr:
        """A local that holds ``value``, of memory at ``at``, written in front of ``loop``.

        It is written once in another loop over ``at``, where no loop over axes writes to what it reads; but
        behind that, somebody may.
        """
        if known := self.scopes.known(value):
            return known
        name = self.local(hint)
        self.scopes.open[loop].before.add(Assign((name,), value))
        if not is_static(at):
            self.scopes.open[loop - 1].known[value] = name
        return name
