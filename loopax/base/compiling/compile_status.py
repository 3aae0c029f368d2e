"""Compilation with a status line after a while, and without garbage collection.

An interrupt raises in the waiting thread; the compilation runs to its end
(`loopax.base.uninterrupted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from loopax.base.gc_pause import gc_paused
from loopax.base.lock import forks_wait_for
from loopax.base.status_line import waiting
from loopax.base.uninterrupted import uninterrupted
from loopax.base.upstream.numba import COMPILER_LOCKS, Dispatcher, global_compiler_lock

if TYPE_CHECKING:
    from numba import types

# A fork waits until they are free, as for the locks of `logging`: a child with a half-changed copy of LLVM
# aborts, or hangs.
for _lock in reversed(COMPILER_LOCKS):  # the last one registered runs first
    forks_wait_for(_lock)


def with_status(dispatcher: Dispatcher) -> Any:
    """Give ``dispatcher`` a status line while it compiles, or reads its code from disk.

    Numba's own events report every compilation of a process, and must be enabled on import.
    """
    compile_, function = dispatcher.compile, dispatcher.py_func

    @wraps(compile_)
    def compile_and_say(signature: tuple[types.Type, ...]) -> Any:
        with compilation_of(function):
            if global_compiler_lock.is_locked():  # by this thread, which compiles a caller
                return compile_(signature)
            return uninterrupted(lambda: compile_(signature))

    dispatcher.compile = compile_and_say
    return dispatcher


@contextmanager
def compilation_of(function: Callable[..., Any]) -> Iterator[None]:
    """A block that compiles ``function``, with its status line."""
    with gc_paused(), waiting(f"native code{_lines_of(function)}"):
        yield


def _lines_of(function: Callable[..., Any]) -> str:
    """The length of the source of ``function``, in words, if the emitter wrote it."""
    source = getattr(function, "__source__", None)
    return f" of {source.count(chr(10)) + 1} lines" if source else ""
