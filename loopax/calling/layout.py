"""The assignment of a context's values to shared variables.

Two entries belong to *one variable* if they have the same storage. A pickled context has lost its
storages: its entries are *bare*, and one of them belongs to a variable if no other has its name and
type. A program and a bare context with the same names in the same order match as a whole, entries
without a name included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from loopax.ir.program import Shared, unique_names


@dataclass(frozen=True, eq=False)
class Layout:
    """The shared variables of a context, with their names in it.

    Layouts are equal where the names are, and at each position one entry is bare or both belong to one
    variable: the pytrees of two contexts differ where their layouts do.
    """

    names: tuple[str, ...]
    shared: tuple[Shared, ...]

    @classmethod
    def of(cls, shared: Sequence[Shared]) -> Layout:
        return cls(unique_names(shared), tuple(shared))

    def __reduce__(self) -> Any:
        bare = tuple(Shared(s.variable.type(name=s.variable.name), []) for s in self.shared)
        return Layout, (self.names, bare)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Layout)
            and self.names == other.names
            and all(map(_may_be_one, self.shared, other.shared))
        )

    def __hash__(self) -> int:
        return hash(self.names)

    @cached_property
    def _position_of(self) -> dict[int, int]:
        return {id(s.storage): k for k, s in enumerate(self.shared)}

    def positions(self, shared: tuple[Shared, ...]) -> list[int | None]:
        """The positions of the values of these variables; None for a variable without a value."""
        for known, positions in self._latest:
            if known is shared:  # a program asks three times in each call
                return positions
        positions = self._positions(shared)
        self._latest[:] = [(shared, positions)]
        return positions

    @cached_property
    def _latest(self) -> list[tuple[tuple[Shared, ...], list[int | None]]]:
        """The variables of the latest call, and their positions: at most one entry."""
        return []

    def _positions(self, shared: tuple[Shared, ...]) -> list[int | None]:
        if self.shared and all(map(_is_bare, self.shared)) and unique_names(shared) == self.names:
            return list(range(len(self.names)))
        return [self._position(s) for s in shared]

    def _position(self, shared: Shared) -> int | None:
        if id(shared.storage) in self._position_of:
            return self._position_of[id(shared.storage)]
        name, declared = shared.variable.name, shared.variable.type
        candidates = [
            k
            for k, s in enumerate(self.shared)
            if name and s.variable.name == name and s.variable.type == declared
        ]
        return (
            candidates[0] if len(candidates) == 1 and _is_bare(self.shared[candidates[0]]) else None
        )

    def find(self, key: str | Variable) -> int:
        """The position of the value for ``key``, a name or a shared variable.

        Raises `KeyError` if there is none; `TypeError` if ``key`` is neither.
        """
        if isinstance(key, str):
            if key in self.names:
                return self.names.index(key)
            raise KeyError(f"The context has no value named {key!r}: it has {self.listed()}.")
        if not isinstance(key, SharedVariable):
            raise TypeError(
                f"Look up a value in a context by name or by shared variable, not by {key!r} of type "
                f"{type(key).__name__}."
            )
        position = self._position(Shared(key, key.container.storage))
        if position is None:
            raise KeyError(
                f"The context has no value of the shared variable {key}: it has {self.listed()}. Make "
                "a context with jf.init_context() of a function that reads or updates the variable."
            )
        return position

    def listed(self) -> str:
        return ", ".join(self.names) or "none at all"


def _is_bare(s: Shared) -> bool:
    return not s.storage


def _may_be_one(a: Shared, b: Shared) -> bool:
    return a.storage is b.storage or _is_bare(a) or _is_bare(b)
