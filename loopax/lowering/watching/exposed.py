"""``Exposed``: a watched value outside of the loops and branches that it was computed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable


@dataclass
class Exposed:
    """A watched value: its rows, where there are any, and the steps of each, the outermost loop's first.

    ``name`` is None for the condition of a breakpoint. ``present`` says which rows are some; None: all.
    With ``has_axis`` all have a leading axis for the steps.
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
        """The value with a flag for each row that says whether it is one."""
        if self.present is not None:
            return self
        shape = self.value.shape[:1] if self.has_axis else ()
        return replace(self, present=pt.ones(shape, dtype="bool"))

    def with_axis(self) -> Exposed:
        """The value with an axis for steps, one row where it is in no loop."""
        if self.has_axis:
            return self
        return self.with_flat([x[None] for x in self.flat()], has_axis=True)

    def cut(self, last: int | None) -> Exposed:
        """The last rows alone, where all are some."""
        if last is None or self.present is not None or self.name is None:
            return self
        return self.with_flat([x[-last:] for x in self.flat()])


def read_back(items: Iterable[Exposed], variables: Iterable[Any]) -> list[Exposed]:
    """``items`` with ``variables`` in the place of those in `Exposed.flat`, one after the other."""
    remaining = iter(variables)
    return [item.with_flat([next(remaining) for _ in item.flat()]) for item in items]
