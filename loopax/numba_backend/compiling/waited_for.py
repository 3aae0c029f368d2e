"""Compilation that somebody waits for: it is said after a while, and nothing is collected meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from loopax.ir.collection import uncollected
from loopax.ir.waiting import waiting


def waited_for(dispatcher: Any) -> Any:
    """``dispatcher``, which says that it is waited for while it compiles, or reads what it has on disk.

    Numba's own events tell of all that is compiled in a process, and would have to be asked for on import.
    """
    compile_, function = dispatcher.compile, dispatcher.py_func

    @wraps(compile_)
    def compile_and_say(signature: Any) -> Any:
        with compilation_of(function):
            return compile_(signature)

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
