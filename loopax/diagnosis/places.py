"""``Place``: one number of a run; and which numbers of its operands a number follows from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import Switch
from pytensor.tensor.elemwise import Elemwise

from loopax.base.upstream.pytensor import IfElse
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import Entry, at_entry, bad_entries, first_true, is_inexact, kind_of
from loopax.facts import Structure, facts_of
from loopax.ir.evaluation.evaluate import apply


class Place(NamedTuple):
    """A number: an entry of the value that a variable has in a frame. ``entry`` is None where unknown."""

    frame: Frame
    variable: Variable
    entry: Entry | None

    @classmethod
    def bad(cls, frame: Frame, variable: Variable, entry: Entry | None = None) -> Place:
        """The place at ``entry``, or where that is not known at the first that is not finite."""
        if entry is None:
            value = frame.value(variable)
            flags = bad_entries(value)
            if flags is not None and np.shape(flags) == np.shape(value):
                entry = first_true(flags)
        return cls(frame, variable, entry)

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


def operand(place: Place) -> Place | None:
    """The operand, not finite, that ``place`` follows from; a nan before an infinity, a constant last."""
    node = place.node
    assert node is not None
    found = []
    for k in _read(place, node):
        v = node.inputs[k]
        value = place.frame.value(v)
        flags = bad_entries(value)
        if flags is None or not flags.any():
            continue
        entry = _entry(place, node, k, flags) if np.shape(flags) == np.shape(value) else None
        if entry == ():
            entry = () if np.ndim(value) == 0 else None
        if (
            entry is None
            and _region(place, node, k) is not None
            and np.shape(flags) == np.shape(value)
        ):
            continue  # what it reads of this operand is finite
        found.append(Place(place.frame, v, entry))
    if not found:
        return None
    wanted = place.kind
    return min(
        found, key=lambda p: (isinstance(p.variable, Constant), p.kind != "nan", p.kind != wanted)
    )


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


def _read(place: Place, node: Apply) -> Sequence[int]:
    """The operands whose numbers the result has: of a choice, the one that was chosen."""
    op: Any = node.op
    everything = range(len(node.inputs))
    if isinstance(op, IfElse):
        k = node.outputs.index(place.variable)
        return [1 + k if place.frame.value(node.inputs[0]) else 1 + op.n_outs + k]
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Switch) and place.entry is not None:
        condition = np.asarray(place.frame.value(node.inputs[0]))
        at = tuple(0 if n == 1 else k for k, n in zip(place.entry, condition.shape, strict=True))
        return [1 if condition[at] else 2]
    return everything


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


def _entry(place: Place, node: Apply, k: int, flags: Any) -> Entry | None:
    """The first entry of operand ``k`` that is not finite, of those that the number follows from."""
    if (moved := _moved_from(place, node, k)) is not None:
        return moved if flags[moved] else None
    region = _region(place, node, k)
    if region is None:
        return first_true(flags)
    first = first_true(flags[region])
    if first is None:
        return None
    starts = [s.start or 0 for s in region]
    return tuple(a + b for a, b in zip(starts, first, strict=True))


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
