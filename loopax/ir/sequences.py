"""Lists with other items in some places, and functions of the items there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def with_items(xs: Iterable[Any], places: Iterable[int], new: Iterable[Any]) -> list[Any]:
    """A list of ``xs`` with the ``new`` items at these ``places``.

    >>> with_items("abcd", [0, 2], [1, 2])
    [1, 'b', 2, 'd']
    """
    found = list(xs)
    for k, x in zip(places, new, strict=True):
        found[k] = x
    return found


def partial_at(
    function: Callable[..., Any], xs: Sequence[Any], places: Sequence[int]
) -> Callable[..., Any]:
    """``function(*xs)`` as a function of the items at these ``places``; the others are those of ``xs``."""
    return lambda *some: function(*with_items(xs, places, some))
