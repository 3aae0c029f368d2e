"""Lists with some items replaced, and functions of some items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def with_items(xs: Iterable[Any], positions: Iterable[int], values: Iterable[Any]) -> list[Any]:
    """Copy the list ``xs`` with ``values`` at ``positions``.

    >>> with_items("abcd", [0, 2], [1, 2])
    [1, 'b', 2, 'd']
    """
    items = list(xs)
    for k, x in zip(positions, values, strict=True):
        items[k] = x
    return items


def partial_at(
    function: Callable[..., Any], xs: Sequence[Any], positions: Sequence[int]
) -> Callable[..., Any]:
    """Restrict ``function(*xs)`` to the items at ``positions``, with the others fixed."""
    return lambda *items: function(*with_items(xs, positions, items))
