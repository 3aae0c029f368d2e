"""Specializations of one program to small lengths, which are numbers in the source instead of names.

If the sizes of small vectors and matrices are known, a step is unrolled element by element, in
locals. PyTensor's users seldom declare them, so they come from the arguments: a program is rewritten
for the small lengths that its loops use, once for each set of lengths in a call. Lengths of sequences
stay names. After `_MOST` sets of lengths the program for unknown lengths serves all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopax.base.compiling.no_recompilation import no_recompilation
from loopax.base.lock import TRACING
from loopax.numba_backend.cache.code_cache import keep_on_disk
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.source import compiled
from loopax.numba_backend.emit.values import LONGEST

Axis = tuple[int, int]  # input, axis
Sizes = dict[Axis, int]

_MOST = 4  # specializations of a program
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
        self._functions: dict[tuple[Any, ...], Any] = {}  # by small lengths, None for long ones
        self.by_lengths: dict[tuple[int, ...], Any] = {}  # by the lengths of all axes
        self._keeps_shapes = True
        emit = self._emitted({})
        self.foreign_calls, self.by_python = emit.foreign_calls, emit.by_python
        self.axes: Sequence[Axis] = sorted(
            emit.axes[n] for n in emit.scopes.in_steps() if n in emit.axes
        )
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
            key = tuple(n if n <= LONGEST else None for n in lengths)
            if key not in self._functions and len(self._functions) >= _MOST:
                key = (None,) * len(key)
            if key not in self._functions:
                pairs = zip(self.axes, key, strict=True)
                sizes = {axis: n for axis, n in pairs if n is not None}
                emit = self._sized(sizes) if sizes else self._general
                function = compiled(emit.source.function(emit.namespace, emit.keys), self._inner)
                if not self._inner:  # the cached caller contains its code
                    keep_on_disk(no_recompilation(function))
                self._functions[key] = function
            if len(self.by_lengths) >= _REMEMBERED:
                self.by_lengths.clear()
            self.by_lengths[lengths] = self._functions[key]
            return self._functions[key]

    def changing(self) -> None:
        """Rewrite the program for states that change their shapes."""
        with TRACING:
            if self._keeps_shapes:
                self._keeps_shapes = False
                self._general = self._emitted({})
                self._functions.clear()
                self.by_lengths.clear()
