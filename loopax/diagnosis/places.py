"""``Place``: one number of a run, and the entries of operands from which it was computed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.diagnosis.contributions import entries_behind
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import Entry, at_entry, bad_entries, first_true, is_inexact, kind_of


class Place(NamedTuple):
    """An entry of the value of a variable in a frame. ``entry`` is None where unknown."""

    frame: Frame
    variable: Variable
    entry: Entry | None

    @property
    def node(self) -> Apply | None:
        """The node that computed the value; None for an input or a constant."""
        return None if self.variable in self.frame.roots else self.variable.owner

    @property
    def value(self) -> Any:
        return self.frame.value(self.variable)

    @property
    def number(self) -> Any:
        return at_entry(self.value, self.entry)

    @property
    def kind(self) -> str:
        """``nan``, ``inf`` or ``-inf``; without an entry, ``nan`` if the value contains one."""
        number = self.number
        if np.ndim(number) == 0 and is_inexact(number):
            return kind_of(number)
        flags = bad_entries(number)
        if flags is None or not flags.any():
            return ""
        return "nan" if np.isnan(_dense(number)).any() else "inf"


def entries_read(place: Place, node: Apply, k: int) -> Entry | None:
    """The only entry of operand ``k`` that the number depends on; None where there are several."""
    value = place.frame.value(node.inputs[k])
    if not np.shape(value) or place.entry is None:
        return None  # a node that failed has no value
    shape = np.shape(place.value)
    if len(place.entry) != len(shape):
        return None
    entries = np.zeros(shape, bool)
    entries[place.entry] = True
    flags = entries_behind(place.frame, node, place.variable, k, entries)
    if np.shape(flags) != np.shape(value) or np.count_nonzero(flags) != 1:
        return None
    return first_true(flags)


def _dense(value: Any) -> Any:
    return value.data if hasattr(value, "indptr") else np.asarray(value)
