"""What a backend says of values at its border, as functions of a value and PyTensor's type for it."""

from __future__ import annotations

from typing import Any, Protocol

from pytensor.graph.basic import Variable


class Crossing(Protocol):
    """A module with these names is one. ``what`` says in errors whose value ``x`` is."""

    TARGET: str  # what the program becomes, in words

    def accept(self, x: Any, expected: Any, what: str) -> Any:
        """What a caller gives, as a value of the type ``expected``; it need not be a copy.

        Raises
        ------
        LoopTypeError
            The type cannot hold it.
        """

    def accept_copy(self, x: Any, expected: Any, what: str) -> Any:
        """A copy of what `accept` returns, for a context to keep: nobody else can change it."""

    def snapshot(self, x: Any, variable: Variable, what: str) -> Any:
        """What a shared variable holds, for a context to keep."""

    def stored(self, x: Any, held: Any, before: Any) -> Any:
        """A value of a context as PyTensor keeps one of type ``held``, after the value ``before``."""
