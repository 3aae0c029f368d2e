"""The conversions of a backend between values of callers, contexts and PyTensor."""

from __future__ import annotations

from typing import Any, Protocol

from pytensor.graph.basic import Variable
from pytensor.graph.type import Type


class Crossing(Protocol):
    """A module of these functions. ``label`` says in errors whose value ``x`` is."""

    TARGET: str  # the name of what the program becomes

    def accept(self, x: object, expected: Type, label: str) -> Any:
        """A caller's value as one of the type ``expected``; not necessarily a copy.

        Raises `LoopTypeError` if the type cannot hold the value.
        """

    def accept_copy(self, x: object, expected: Type, label: str) -> Any:
        """A copy of the result of `accept` for a context to keep, which nobody else can change."""

    def snapshot(self, x: object, variable: Variable, label: str) -> Any:
        """A copy of a shared variable's value, for a context to keep."""

    def stored(self, x: object, declared: Type, current: object) -> Any:
        """A context's value in PyTensor's form for the type ``declared``, in place of ``current``."""
