"""Specializations of one program to small lengths, which are numbers in the source instead of names.

If the sizes of small vectors and matrices are known, a step is unrolled element by element, in
locals. PyTensor's users seldom declare them, so they come from the arguments: a program is rewritten
for the small lengths that its loops use, once for each set of lengths in a call. Lengths of sequences
stay names. After `_MOST` sets of lengths the program for unknown lengths serves all others.

A program for native callers, whose shapes are known where they are compiled, has only one of the two ways
to compute a product, loops or BLAS: loops over matrices take 0.1 to 0.2 s to compile for each product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from loopax.base.compiling.no_recompilation import no_recompilation
from loopax.base.lock import TRACING
from loopax.numba_backend.cache.code_cache import keep_on_disk
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr
from loopax.numba_backend.emit.source import compiled
from loopax.numba_backend.emit.statements import If
from loopax.numba_backend.emit.values import LONGEST

Axis = tuple[int, int]  # input, axis
Sizes = dict[Axis, int]

_MOST = 4  # specializations of a program
_GENERAL: tuple[Any, ...] = (), ()  # the key of the function for all lengths
_REMEMBERED = 1000  # entries of the table from lengths to functions


class SizeSpecializations:
    """Select, or compile, the native function for the lengths of a call's arguments.

    Parameters
    ----------
    write
        Emits the program for known lengths, and for states that keep their shapes or do not.
    inner
        Whether native code alone calls the functions.
    """

    def __init__(self, write: Callable[[Sizes, bool], Emitter], inner: bool = False) -> None:
        self._write = write
        self._inner = inner
        # By small lengths, and by the outcomes of tests of sizes.
        self._functions: dict[tuple[Any, ...], Any] = {}
        self.by_lengths: dict[tuple[int, ...], Any] = {}  # by the lengths of all axes
        self._keeps_shapes = True
        emit = self._emitted({})
        self.foreign_calls, self.by_python = emit.foreign_calls, emit.by_python
        self._in_steps = {emit.axes[n] for n in emit.scopes.in_steps() if n in emit.axes}
        in_tests = {
            emit.axes[n]
            for test in emit.size_tests
            for n in test.lengths
            if inner and isinstance(n, Expr) and n in emit.axes
        }
        self.axes: Sequence[Axis] = sorted(self._in_steps | in_tests)
        self._general = emit

    def __getstate__(self) -> Any:
        raise TypeError("compiled code does not pickle")

    def _emitted(self, sizes: Sizes) -> Emitter:
        emit = self._write(sizes, self._keeps_shapes)
        self.source = emit.text
        return emit

    def _sized(self, sizes: Sizes) -> Emitter:
        try:
            return self._emitted(sizes)
        except (IndexError, ValueError):
            # The lengths do not agree: the general program raises, if it reaches the op in question.
            return self._general

    def find(self, lengths: tuple[int, ...]) -> Any:
        """The function for arguments whose `axes` have ``lengths``, stored in `by_lengths`."""
        with TRACING:
            known = dict(zip(self.axes, lengths, strict=True))
            sizes = {a: n for a, n in known.items() if a in self._in_steps and n <= LONGEST}
            outcomes = tuple(outcome for _, outcome in self._decided(self._general, known))
            key = tuple(sorted(sizes.items())), outcomes
            if key not in self._functions and len(self._functions) >= _MOST:
                key, sizes, known = _GENERAL, {}, {}
            if key not in self._functions:
                emit = self._sized(sizes) if sizes else self._general
                decided = self._decided(emit, known)
                for statement, outcome in decided:
                    statement.decided = outcome
                self.source = emit.text
                function = compiled(emit.source.function(emit.namespace, emit.keys), self._inner)
                for statement, _ in decided:
                    statement.decided = None  # another function may be printed from this tree
                if not self._inner:  # the cached caller contains its code
                    keep_on_disk(no_recompilation(function))
                self._functions[key] = function
            if len(self.by_lengths) >= _REMEMBERED:
                self.by_lengths.clear()
            self.by_lengths[lengths] = self._functions[key]
            return self._functions[key]

    def _decided(self, emit: Emitter, known: Sizes) -> list[tuple[If, bool]]:
        """The conditionals whose outcome follows from the ``known`` lengths, with their outcomes."""
        decided = []
        for test in emit.size_tests if self._inner else ():
            axes = [emit.axes.get(n) for n in test.lengths if isinstance(n, Expr)]
            if known.keys() >= set(axes):
                lengths = (known[emit.axes[n]] if isinstance(n, Expr) else n for n in test.lengths)
                decided.append((test.statement, prod(lengths) <= test.most))
        return decided

    def changing(self) -> None:
        """Rewrite the program for states that change their shapes."""
        with TRACING:
            if self._keeps_shapes:
                self._keeps_shapes = False
                self._general = self._emitted({})
                self._functions.clear()
                self.by_lengths.clear()
