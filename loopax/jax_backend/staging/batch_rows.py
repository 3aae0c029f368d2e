"""The rows of a batch over which a program is traced, which the shapes inside of `jax.vmap` do not show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ROWS: ContextVar[int] = ContextVar("rows", default=1)


def batch_rows() -> int:
    """The number of rows, 1 outside of `traced_over`."""
    return _ROWS.get()


@contextmanager
def traced_over(rows: int) -> Iterator[None]:
    """Say that what is traced meanwhile is traced for one of ``rows`` rows."""
    token = _ROWS.set(rows)
    try:
        yield
    finally:
        _ROWS.reset(token)
