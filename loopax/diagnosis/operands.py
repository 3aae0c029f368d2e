"""Operands of a node that failed, as lines of a finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import CheckAndRaise

from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import Entry, at_entry, entry_in_words, first_true, value_in_words
from loopax.diagnosis.origin import Origin, expression
from loopax.diagnosis.places import Place, entries_read
from loopax.diagnosis.report import Operand

_MOST = 6  # operands of one finding


def operands_of(
    place: Place, node: Apply, names: Mapping[Variable, str], code: str
) -> list[Operand]:
    """Operands of a node, and behind each condition the operands of its comparisons."""
    operands = []
    frame = place.frame
    for k, v in enumerate(node.inputs[:_MOST]):
        if _is_written(frame, v):
            continue  # the expression shows its value
        operands.append(_operand(place, node, k, v, names, code))
        if getattr(v.type, "dtype", "") == "bool":
            is_check = isinstance(node.op, CheckAndRaise)
            for u, entry in _comparisons(
                frame, v, None if is_check else entries_read(place, node, k)
            ):
                compared = Place(frame, u, entry)
                operands += [
                    _operand(compared, u.owner, j, x, names, code)
                    for j, x in enumerate(u.owner.inputs)
                    if not _is_written(frame, x)
                ]
    return operands[:_MOST]


def _is_written(frame: Frame, v: Variable) -> bool:
    """Whether ``v`` is a number of the program itself."""
    return frame.is_constant(v) and np.size(frame.value(v)) <= 1


def _comparisons(
    frame: Frame, v: Variable, entry: Entry | None, depth: int = 6
) -> Iterator[tuple[Any, Entry | None]]:
    """The comparisons in a condition; for a false condition, its false comparisons alone."""
    node = None if v in frame.roots else v.owner
    if node is None or depth == 0 or v not in frame.values:
        return
    flags = [u for u in node.inputs if getattr(u.type, "dtype", "") == "bool"]
    if not flags:
        value = np.asarray(frame.value(v))
        if entry is None and value.ndim:
            entry = first_true(~value)
        if entry is not None or not value.ndim:
            yield v, entry
        return
    for u in flags:
        if np.all(frame.value(u)) and not np.all(frame.value(v)):
            continue  # another comparison made the condition false
        inner_entry = entry if np.ndim(frame.value(u)) == len(entry or ()) else None
        yield from _comparisons(frame, u, inner_entry, depth - 1)


def _operand(
    place: Place, node: Apply, k: int, v: Variable, names: Mapping[Variable, str], code: str
) -> Operand:
    value = place.frame.value(v)
    entry = entries_read(place, node, k)
    at = entry_in_words(entry)
    origin = Origin(v)
    line = str(origin) if v.owner is not None and origin.code != code else ""
    if v.owner is None and not names.get(v):
        line = ""
    text = expression(v, names, 2)
    text = f"({text}){at}" if at and " " in text else f"{text}{at}"
    return Operand(text, at_entry(value, entry), value_in_words(value, entry), entry, line)
