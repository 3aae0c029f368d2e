"""``Exposed``: a watched value outside of the loops and branches that it was computed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable


@dataclass
class Exposed:
    """A watched value: its rows, with the step numbers of each, outermost loop first.

    ``name`` is None for the condition of a breakpoint. ``present`` flags the rows that were computed, None
    if all were. With ``has_axis`` all fields have a leading axis for the steps.
    """

    name: str | None
    value: Any
    present: Any = None
    steps: list[Any] = field(default_factory=list)
    has_axis: bool = False

    def flat(self) -> list[Any]:
        return [self.value, *self.steps, *([] if self.present is None else [self.present])]

    def with_flat(self, flat: Sequence[Variable], **changed: Any) -> Exposed:
        n = 1 + len(self.steps)
        present = None if self.present is None else flat[n]
        return replace(self, value=flat[0], steps=[*flat[1:n]], present=present, **changed)

    def with_present(self) -> Exposed:
        """The value with an explicit flag for each row that says whether it was computed."""
        if self.present is not None:
            return self
        shape = self.value.shape[:1] if self.has_axis else ()
        return replace(self, present=pt.ones(shape, dtype="bool"))

    def with_axis(self) -> Exposed:
        """The value with an axis for steps, of length 1 where it is in no loop."""
        if self.has_axis:
            return self
        return self.with_flat([x[None] for x in self.flat()], has_axis=True)

    def cut(self, last: int | None) -> Exposed:
        """Keep the last rows only, if all rows were computed."""
        if last is None or self.present is not None or self.name is None:
            return self
        return self.with_flat([x[-last:] for x in self.flat()])


def read_back(items: Iterable[Exposed], variables: Iterable[Any]) -> list[Exposed]:
    """Rebuild ``items`` from ``variables``, which are in the order of `Exposed.flat`."""
    remaining = iter(variables)
    return [item.with_flat([next(remaining) for _ in item.flat()]) for item in items]
