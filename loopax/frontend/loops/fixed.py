"""``Fixed``: an argument that is not an array, compared by value."""

from __future__ import annotations

from typing import Any


class Fixed:
    """A value, equal to another if no function can tell the two apart; without a hash, by identity."""

    def __init__(self, value: object) -> None:
        self.value = value
        try:
            self._key: Any = identity(value)
        except TypeError:
            self._key = id(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)


def identity(value: object) -> Any:
    """A hashable key of a value, equal only for values that no function can tell apart.

    To Python 1, 1.0 and True are equal, and 0.0 and -0.0.

    Raises `TypeError` if the value has no hash.
    """
    if isinstance(value, tuple):
        return type(value), tuple(map(identity, value))
    if isinstance(value, frozenset):
        return type(value), frozenset(map(identity, value))
    hash(value)
    return type(value), repr(value) if isinstance(value, complex | float) else value
