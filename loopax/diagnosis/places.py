"""``Place``: one number of a run; and which numbers of its operands a number follows from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import Entry, at_entry, bad_entries, is_inexact, kind_of
from loopax.facts import Structure, facts_of
from loopax.ir.evaluation.evaluate import apply


class Place(NamedTuple):
    """A number: an entry of the value that a variable has in a frame. ``entry`` is None where unknown."""

    frame: Frame
    variable: Variable
    entry: Entry | None

    @property
    def node(self) -> Apply | None:
        """What computed it in its frame; None of an input or a constant."""
        return None if self.variable in self.frame.roots else self.variable.owner

    @property
    def value(self) -> Any:
        return self.frame.value(self.variable)

    @property
    def number(self) -> Any:
        return at_entry(self.value, self.entry)

    @property
    def kind(self) -> str:
        """``nan``, ``inf`` or ``-inf``; of a value whose entry is not known ``nan`` if it has one."""
        number = self.number
        if np.ndim(number) == 0 and is_inexact(number):
            return kind_of(number)
        flags = bad_entries(number)
        if flags is None or not flags.any():
            return ""
        return "nan" if np.isnan(_dense(number)).any() else "inf"


def entries_read(place: Place, node: Apply, k: int) -> Entry | None:
    """The one entry of operand ``k`` that the number follows from; None where there are several."""
    shape = np.shape(place.frame.value(node.inputs[k]))
    if not shape:
        return None
    if (moved := _moved_from(place, node, k)) is not None:
        return moved
    region = _region(place, node, k)
    if region is None:
        return None
    ones = [np.arange(n)[s] for n, s in zip(shape, region, strict=True)]
    if any(len(x) != 1 for x in ones):
        return None
    return tuple(int(x[0]) for x in ones)


def _region(place: Place, node: Apply, k: int) -> tuple[Any, ...] | None:
    """The entries of operand ``k`` that the number follows from, as an index; None for all."""
    if place.entry is None or node.outputs.index(place.variable) != 0:
        return None
    axes = facts_of(node.op).axes(node)
    if axes is None or len(axes) <= k or len(axes[k]) != len(place.entry):
        return None
    shape = np.shape(place.frame.value(node.inputs[k]))
    index: list[Any] = [slice(None)] * len(shape)
    for at, axis in zip(place.entry, axes[k], strict=True):
        if axis is not None:
            index[axis] = slice(0, 1) if shape[axis] == 1 else slice(at, at + 1)
    return tuple(index)


def _moved_from(place: Place, node: Apply, k: int) -> Entry | None:
    """The entry of operand ``k`` that the number is, of an op that moves entries.

    Found by moving positions in the place of numbers.
    """
    if place.entry is None or facts_of(node.op).structure is not Structure.MOVES:
        return None
    values = [place.frame.value(v) for v in node.inputs]
    x = np.asarray(values[k])
    if x.dtype.kind != "f" or x.size >= 2 ** np.finfo(x.dtype).nmant:
        return None
    marked = [np.zeros_like(v) if is_inexact(v) else v for v in values]
    marked[k] = np.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape)
    try:
        moved = apply(node, marked)[node.outputs.index(place.variable)][place.entry]
    except Exception:  # not these numbers: the shapes then say nothing
        return None
    position = int(moved) - 1
    if position < 0:
        return None
    return tuple(int(j) for j in np.unravel_index(position, x.shape))


def _dense(value: Any) -> Any:
    return value.data if hasattr(value, "indptr") else np.asarray(value)
