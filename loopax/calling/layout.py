"""Which value of a context is whose.

Two entries are of *one variable* if they have the same storage. A context that was pickled has left its
storages behind, which hold the values of another time: its entries are *bare*, and one of them is that of
a variable if it alone has its name and type. Where all names of a program are those of a bare context, in
the same order, so are the variables, those without a name and those that share one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytensor.compile.sharedvalue import SharedVariable

from loopax.ir.program import Shared, unique_names


@dataclass(frozen=True, eq=False)
class Layout:
    """The shared variables that a context has values of, and their names in it.

    Layouts are equal where the names are, and at each place one entry is bare or both are of one variable.
    It is what tells the pytrees of two contexts apart.
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
    def _at(self) -> dict[int, int]:
        return {id(s.storage): k for k, s in enumerate(self.shared)}

    def positions(self, shared: Sequence[Shared]) -> list[int | None]:
        """Where the values of these variables are, None for those that there are none of."""
        # Names are compared last: this runs at every call, of contexts that are hardly ever bare.
        if self.shared and all(map(_is_bare, self.shared)) and unique_names(shared) == self.names:
            return list(range(len(self.names)))
        return [self._position(s) for s in shared]

    def _position(self, shared: Shared) -> int | None:
        if id(shared.storage) in self._at:
            return self._at[id(shared.storage)]
        name, held = shared.variable.name, shared.variable.type
        same = [
            k
            for k, s in enumerate(self.shared)
            if name and s.variable.name == name and s.variable.type == held
        ]
        return same[0] if len(same) == 1 and _is_bare(self.shared[same[0]]) else None

    def find(self, key: Any) -> int:
        """Where the value for ``key``, a name or a shared variable, is.

        Raises
        ------
        KeyError
            There is none.
        TypeError
            ``key`` is neither.
        """
        if isinstance(key, str):
            if key in self.names:
                return self.names.index(key)
            raise KeyError(f"The context has no value named {key!r}: it has {self.listed()}.")
        if not isinstance(key, SharedVariable):
            raise TypeError(
                f"A value in a context is found by name or by shared variable, not by {key!r} of type "
                f"{type(key).__name__}."
            )
        found = self._position(Shared(key, key.container.storage))
        if found is None:
            raise KeyError(
                f"The context has no value of the shared variable {key}: it has {self.listed()}. A "
                "function that reads or updates the variable makes one: jf.init_context()."
            )
        return found

    def listed(self) -> str:
        return ", ".join(self.names) or "none at all"


def _is_bare(s: Shared) -> bool:
    return not s.storage


def _may_be_one(a: Shared, b: Shared) -> bool:
    return a.storage is b.storage or _is_bare(a) or _is_bare(b)
