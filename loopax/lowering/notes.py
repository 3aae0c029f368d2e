"""A pass's notes on its changes, for `loopax.explain`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LINES: ContextVar[list[str] | None] = ContextVar("lines", default=None)


def note(line: str) -> None:
    """Report ``line`` to a collector; there is one only where a program is explained."""
    lines = _LINES.get()
    if lines is not None:
        lines.append(line)


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect the lines that passes report inside the context."""
    lines: list[str] = []
    token = _LINES.set(lines)
    try:
        yield lines
    finally:
        _LINES.reset(token)
