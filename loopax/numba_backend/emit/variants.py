"""The native functions of one program: which lengths are numbers in the source, and which names.

Where the sizes of small vectors and matrices are known, a step is written out element by element and
holds them in locals. PyTensor's users seldom say them, so they are taken from the arguments: a program
is written anew for the small lengths that its loops use and that it is called with. Lengths of
sequences are none of these. After some sets of lengths the program of unknown lengths serves all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loopax.base.compiling.exact_types import exact
from loopax.base.lock import TRACING
from loopax.numba_backend.cache.code_cache import keep_on_disk
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.source import compiled
from loopax.numba_backend.emit.values import LONGEST

Axis = tuple[int, int]  # input, axis
Sizes = dict[Axis, int]

_MOST = 4  # sets of lengths that a program is written for
_REMEMBERED = 1000  # sets of lengths whose function is remembered


class Variants:
    """Finds, and makes, the native function for the lengths of a call's arguments.

    Parameters
    ----------
    write
        Emits the program, given the lengths that are known, and whether states keep their shapes.
    inner
        Whether native code alone calls the functions.
    """

    def __init__(self, write: Callable[[Sizes, bool], Emitter], inner: bool = False) -> None:
        self._write = write
        self._inner = inner
        self._lock = TRACING
        self._made: dict[tuple[Any, ...], Any] = {}  # by the small lengths, None for the others
        self.found: dict[tuple[int, ...], Any] = {}  # by the lengths of all axes
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
            # Lengths that do not fit together: the general program raises, if it gets to where they meet.
            return self._general

    def find(self, lengths: tuple[int, ...]) -> Any:
        """The function for arguments whose `axes` have these lengths; `found` has it from then on."""
        with self._lock:
            key = tuple(n if n <= LONGEST else None for n in lengths)
            if key not in self._made and len(self._made) >= _MOST:
                key = (None,) * len(key)
            if key not in self._made:
                pairs = zip(self.axes, key, strict=True)
                sizes = {axis: n for axis, n in pairs if n is not None}
                emit = self._sized(sizes) if sizes else self._general
                function = compiled(emit.source.function(emit.namespace, emit.keys), self._inner)
                if not self._inner:  # what calls it is kept, with its code in it
                    keep_on_disk(exact(function))
                self._made[key] = function
            if len(self.found) >= _REMEMBERED:
                self.found.clear()
            self.found[lengths] = self._made[key]
            return self._made[key]

    def changing(self) -> None:
        """Write the program anew for states that do not keep their shapes, after one has not."""
        with self._lock:
            if self._keeps_shapes:
                self._keeps_shapes = False
                self._general = self._emitted({})
                self._made.clear()
                self.found.clear()
