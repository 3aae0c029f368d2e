"""Compilation that somebody waits for: it is said after a while, and nothing is collected meanwhile.

An interrupt meets who waits; the compilation goes on to its end (`loopax.base.uninterrupted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from loopax.base.garbage_collection import uncollected
from loopax.base.lock import forks_wait_for
from loopax.base.uninterrupted import uninterrupted
from loopax.base.upstream.numba import global_compiler_lock, llvm_ffi
from loopax.base.waiting import waiting

# Numba's and LLVM's, in the order in which a compilation takes them. A fork waits until they are free, as
# for those of `logging`: a child whose copy of LLVM is in the middle of a change aborts, or hangs.
LOCKS = global_compiler_lock._lock, llvm_ffi.lib._lock._lock
for _lock in reversed(LOCKS):  # what is registered last is run first
    forks_wait_for(_lock)


def waited_for(dispatcher: Any) -> Any:
    """``dispatcher``, which says that it is waited for while it compiles, or reads what it has on disk.

    Numba's own events tell of all that is compiled in a process, and would have to be asked for on import.
    """
    compile_, function = dispatcher.compile, dispatcher.py_func

    @wraps(compile_)
    def compile_and_say(signature: Any) -> Any:
        with compilation_of(function):
            if global_compiler_lock.is_locked():  # by this thread, which compiles what calls it
                return compile_(signature)
            return uninterrupted(lambda: compile_(signature))

    dispatcher.compile = compile_and_say
    return dispatcher


@contextmanager
def compilation_of(function: Any) -> Iterator[None]:
    """In the block somebody waits for ``function``."""
    with uncollected(), waiting(f"native code{_lines_of(function)}"):
        yield


def _lines_of(function: Any) -> str:
    """How long the source of ``function`` is, in words, if it is one of ours."""
    source = getattr(function, "__source__", None)
    return f" of {source.count(chr(10)) + 1} lines" if source else ""
