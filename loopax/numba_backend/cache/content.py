"""Keys of native functions: what two functions with equal code have in common, in all processes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.registry import cpu_target

from loopax.cache.environment import PACKAGES, stamp, versions

_UNWRITTEN = {"__name__", "__builtins__", "__source__", "__file__"}  # globals that say nothing
_OPTIONS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")


class _NotKnown(Exception):
    """A global is something of which nothing can be said but that it is there."""


def content_key(function: Any, *parts: Any) -> str | None:
    """A hash of all that the native code of ``function`` depends on, or None where that is not known.

    Parameters
    ----------
    function
        A Python function with its ``__source__``, made by `Emitter.function`.
    parts
        What else the code depends on, of which ``repr`` is the same in all processes.
    """
    digest = hashlib.sha256()
    try:
        for part in (*_environment(), *map(repr, parts), *_contents(function)):
            content = part.encode() if isinstance(part, str) else part
            digest.update(len(content).to_bytes(8, "little") + content)
    except _NotKnown:
        return None
    return digest.hexdigest()[:40]


def _contents(function: Any) -> Iterator[str | bytes]:
    yield function.__source__
    keys = function.__keys__
    for name, value in sorted(function.__globals__.items()):
        if name not in _UNWRITTEN:
            yield name
            yield from [keys[name]] if name in keys else _of_global(value)


def _of_global(value: Any) -> Iterator[str | bytes]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}"
        yield value.tobytes()
        return
    if isinstance(value, ModuleType):
        yield value.__name__
        return
    function = getattr(value, "py_func", None)
    if hasattr(function, "__keys__"):
        yield from _contents(function)
        return
    module, name = str(getattr(value, "__module__", None)), getattr(value, "__qualname__", None)
    is_error = isinstance(value, type) and issubclass(value, BaseException)
    if not is_error and module.partition(".")[0] not in PACKAGES:
        raise _NotKnown  # a function of a user's, who may have changed it since
    if getattr(sys.modules.get(module), str(name), None) is not value:
        raise _NotKnown  # a name that many have, as in a closure, says nothing
    yield f"{module}.{name}"


@cache
def _environment() -> list[str]:
    """What the same source may be compiled to differently by."""
    options = [f"{name}={getattr(numba.config, name, None)}" for name in _OPTIONS]
    processor = map(str, cpu_target.target_context.codegen().magic_tuple())
    return [*versions(), *processor, *options, stamp(Path(__file__).parent.parent)]
