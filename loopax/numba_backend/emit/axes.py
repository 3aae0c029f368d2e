"""Loops over the axes of arrays, and values computed in front of these loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import TypeGuard

import numpy as np

from loopax.numba_backend.emit.expressions import Dim, Expr, Index
from loopax.numba_backend.emit.statements import Assign, Function, SizeTest
from loopax.numba_backend.emit.values import Position, indices_of, is_small, is_static
from loopax.numba_backend.emit.writer import Writer


class Axes(Writer):
    """A writer of loops over axes.

    Parameters
    ----------
    source
        The function, without statements yet.
    largest
        The most elements of an array of static shape whose elements are locals.
    """

    def __init__(self, source: Function, largest: int) -> None:
        super().__init__(source)
        self.largest = largest
        self.axes: dict[Expr, tuple[int, int]] = {}  # length -> argument and axis
        self.size_tests: list[SizeTest] = []

    def is_small(self, shape: Sequence[Dim | None]) -> TypeGuard[tuple[int, ...]]:
        """Whether the elements of an array of ``shape`` are locals."""
        return is_small(shape, self.largest)

    @contextmanager
    def in_few_lines(self) -> Iterator[None]:
        """Emit what runs rarely: no arrays in locals, which take a line for each element."""
        largest, self.largest = self.largest, 1
        try:
            yield
        finally:
            self.largest = largest

    @contextmanager
    def loops(self, shape: Sequence[Dim]) -> Iterator[list[list[Index]]]:
        """Open nested loops over ``shape``; yields the indices of the elements to write in the
        innermost.

        Trailing axes that are small and static have no loop: each of their indices is yielded.
        """
        inner = len(shape)
        while inner and self.is_small(shape[inner - 1 :]):
            inner -= 1
        tails = list(indices_of([n for n in shape[inner:] if isinstance(n, int)]))
        with ExitStack() as stack:
            head: list[Index] = [
                0 if n == 1 else stack.enter_context(self.loop_over(n)) for n in shape[:inner]
            ]
            yield [[*head, *tail] for tail in tails]

    @contextmanager
    def loop_over(self, n: Dim) -> Iterator[Expr]:
        """Open a loop over an axis of length ``n``; yields the index."""
        index = self.local("i")
        self.note_length(n)
        with self.repeated(index, n, before=self.place(), index=index):
            yield index

    @contextmanager
    def loop_over_positions(self, shape: Sequence[Dim]) -> Iterator[Position]:
        """Open one loop over all elements of arrays of ``shape`` in C order; yields the position."""
        with self.loop_over(self.product(shape)) as index:
            yield Position(index)

    def note_length(self, n: Dim) -> None:
        """Record that a step loops over ``n``, a candidate for specialization."""
        if self.scopes.frames and isinstance(n, Expr):
            self.scopes.looped.add(n)

    def product(self, shape: Sequence[Dim]) -> Dim:
        """The number of elements of an array of ``shape``."""
        static_size = int(np.prod([n for n in shape if isinstance(n, int)], dtype=int))
        if static_size == 0:
            return 0
        return self.number(
            prod([n for n in shape if isinstance(n, Expr)], start=1) * static_size, "n"
        )

    @property
    def is_in_elements(self) -> bool:
        """Whether statements written now run for each element of a loop over axes.

        LLVM moves a condition that is equal for all elements out of the loop, and vectorizes both loops.
        """
        scopes = reversed(self.scopes.open)
        return next(scope.index is not None for scope in scopes if not scope.is_uniform)

    def loop_over_others(self, at: Sequence[Index]) -> int | None:
        """The outermost of the nested innermost loops whose indices are not in ``at``.

        Returns the position of its scope; None if there is none.
        """
        scopes, outermost = self.scopes.open, None
        loop_indices = {scope.index for scope in scopes}
        if not all(isinstance(i, int) or i in loop_indices for i in at):
            return None  # a computed index may depend on any loop
        for k, scope in reversed([*enumerate(scopes)]):
            if scope.index is None or scope.index in at:
                break
            outermost = k
        return outermost

    def before_loop(self, loop: int, value: Expr, at: Sequence[Index], hint: str) -> Expr:
        """A local that holds ``value``, an element at ``at``, assigned in front of ``loop``.

        An enclosing loop over ``at`` shares the local, since no loop over axes writes to memory that it
        reads. Later statements may write there, so the local is valid only inside of that loop.
        """
        if existing := self.scopes.local_of(value):
            return existing
        name = self.local(hint)
        self.scopes.open[loop].before.add(Assign((name,), value))
        if not is_static(at):
            self.scopes.open[loop - 1].local_of[value] = name
        return name
