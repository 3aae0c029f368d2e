"""Whether derivatives of functions are taken at once, or left in the graph as ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LAZY = ContextVar("derivatives are left in the graph", default=False)


def is_lazy(asked: bool | None) -> bool:
    """What was asked for; where nothing was, whether `jaxify` reads the function."""
    return _LAZY.get() if asked is None else asked


@contextmanager
def lazily() -> Iterator[None]:
    """Inside, derivatives are left in the graph: passes go over the functions before they are taken."""
    token = _LAZY.set(True)
    try:
        yield
    finally:
        _LAZY.reset(token)
