"""Entries of operands that made entries of a result nan or infinite.

Flags are arrays of bools in the shape of a value.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import Switch

from loopax.base.upstream.pytensor import IfElse
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import Numbers, bad_entries, is_inexact
from loopax.diagnosis.origin import op_name
from loopax.facts import Structure, facts_of
from loopax.facts.elementwise import is_elementwise
from loopax.ir.evaluation.evaluate import apply

Flags = Mapping[Variable, Any]
_Key = TypeVar("_Key", bound=Hashable)


def add_flags(flags: dict[_Key, Any], key: _Key, more: Any) -> None:
    """Flag the entries of ``key`` that ``more`` flags, with those that ``flags`` has."""
    flags[key] = flags[key] | more if key in flags else np.asarray(more)


def bad_flags(value: Any) -> Any:
    """Flags of non-finite entries, in the shape of ``value``; None where all are finite."""
    flags = bad_entries(value)
    if flags is None or not flags.any():
        return None
    return np.asarray(flags) if np.shape(flags) == np.shape(value) else np.asarray(True)


def contributions(
    frame: Frame, node: Apply, bad_outputs: Flags, through: bool
) -> tuple[dict[int, Any], dict[Variable, Any]]:
    """Entries of the operands of ``node`` that made ``bad_outputs`` entries of its outputs not finite.

    A nan comes from operands that are nan; if there are none, with ``through``, from infinite ones.
    An infinity comes from operands that are not finite.

    Returns
    -------
    Contributing entries by operand, without constants, and the entries that arose here by output.
    """
    by_operand: dict[int, Any] = {}
    arose: dict[Variable, Any] = {}
    for v, flags in bad_outputs.items():
        value = frame.value(v)
        has_entries = is_inexact(value) and np.shape(value) == np.shape(flags)
        is_nan = np.isnan(value) if has_entries else flags
        for selected, is_of_nan in ((flags & is_nan, True), (flags & ~is_nan, False)):
            if np.any(selected):
                parts, own = _contributions_of_kind(frame, node, v, selected, is_of_nan, through)
                for k, p in parts.items():
                    add_flags(by_operand, k, p)
                if np.any(own):
                    add_flags(arose, v, own)
    return by_operand, arose


def _contributions_of_kind(
    frame: Frame, node: Apply, v: Variable, entries: Numbers, is_of_nan: bool, through: bool
) -> tuple[dict[int, Any], Any]:
    """Contributions to entries of one output that are all nan, or all infinite."""
    parts = {k: p for k, p in _bad_operands(frame, node, v, entries).items() if p.any()}
    by_nan = {k: q for k, p in parts.items() if (q := p & _is_nan(frame, node, k)).any()}
    if facts_of(node.op).structure is not Structure.ELEMENTWISE:
        if is_of_nan and (by_nan or not through):
            parts = by_nan
        return parts, entries if not parts else np.zeros_like(entries)
    nan = _covered(frame, node, by_nan, entries)
    if not is_of_nan:
        return parts, entries & ~_covered(frame, node, parts, entries)
    if not through:
        return by_nan, entries & ~nan
    open_entries = entries & ~nan
    infinite = (
        {k: p for k, p in _bad_operands(frame, node, v, open_entries).items() if p.any()}
        if open_entries.any()
        else {}
    )
    own = open_entries & ~_covered(frame, node, infinite, entries)
    merged = dict(by_nan)
    for k, p in infinite.items():
        add_flags(merged, k, p)
    return merged, own


def _covered(frame: Frame, node: Apply, parts: Mapping[int, Any], entries: Numbers) -> Any:
    """Flags of the entries of an elementwise result that read one of ``parts``."""
    covered = np.zeros(np.shape(entries), bool)
    for k, p in parts.items():
        covered |= _readers(frame, node, k, np.broadcast_to(p, covered.shape))
    return covered


def _readers(frame: Frame, node: Apply, k: int, entries: Numbers) -> Any:
    """Flags of the output's ``entries`` that read operand ``k``, where a switch chooses."""
    if not is_elementwise(node, Switch):
        return entries
    condition = np.broadcast_to(np.asarray(frame.value(node.inputs[0]), bool), entries.shape)
    return entries & (condition if k == 1 else ~condition)


def _is_nan(frame: Frame, node: Apply, k: int) -> Any:
    value = frame.value(node.inputs[k])
    return np.isnan(value) if is_inexact(value) else np.asarray(True)


def _bad_operands(frame: Frame, node: Apply, v: Variable, entries: Numbers) -> dict[int, Any]:
    """The bad entries of each operand that ``entries`` of the output ``v`` read."""
    by_operand = {}
    for k, x in enumerate(node.inputs):
        bad = None if frame.is_constant(x) else bad_flags(frame.value(x))
        if bad is None or not _is_chosen(frame, node, v, k):
            continue
        if bad.ndim == 0 and np.ndim(frame.value(x)):  # the position is unknown
            by_operand[k] = bad
            continue
        readers = _readers(frame, node, k, entries)
        by_operand[k] = bad & entries_behind(frame, node, v, k, readers)
    return by_operand


def _is_chosen(frame: Frame, node: Apply, v: Variable, k: int) -> bool:
    """Whether an operand of a lazy choice was chosen."""
    op: Any = node.op
    if not isinstance(op, IfElse):
        return True
    at = node.outputs.index(v)
    return k == (1 + at if frame.value(node.inputs[0]) else 1 + op.n_outs + at)


def entries_behind(frame: Frame, node: Apply, v: Variable, k: int, entries: Any) -> Any:
    """The entries of operand ``k`` from which ``entries`` of the output ``v`` are computed."""
    value = frame.value(node.inputs[k])
    shape = np.shape(value)
    if facts_of(node.op).structure is Structure.MOVES:
        moved = _moved(frame, node, v, k, entries)
        if moved is not None:
            return moved
    axes = facts_of(node.op).axes(node) if node.outputs[0] is v else None
    if axes is None or len(axes) <= k or len(axes[k]) != np.ndim(entries):
        return np.asarray(True)
    axis_pairs = [(axis, o) for o, axis in enumerate(axes[k]) if axis is not None]
    reduced_axes = tuple(o for o, axis in enumerate(axes[k]) if axis is None)
    flags = entries.any(axis=reduced_axes) if reduced_axes else entries
    order = sorted(range(len(axis_pairs)), key=lambda j: axis_pairs[j][0])
    flags = np.transpose(flags, order)
    full = [1] * len(shape)
    for j in order:
        axis, o = axis_pairs[j]
        full[axis] = entries.shape[o]
    flags = flags.reshape(full)
    for axis, n in enumerate(shape):
        if n == 1 and flags.shape[axis] > 1:
            flags = flags.any(axis=axis, keepdims=True)
    return np.broadcast_to(flags, shape)


def _moved(frame: Frame, node: Apply, v: Variable, k: int, entries: Any) -> Any:
    """The entries of operand ``k`` that an op moves to ``entries``, read from moved positions."""
    values = [frame.value(x) for x in node.inputs]
    x = np.asarray(values[k])
    if x.dtype.kind != "f" or x.size >= 2 ** np.finfo(x.dtype).nmant:
        return None
    marked = [np.zeros_like(y) if is_inexact(y) else y for y in values]
    marked[k] = np.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape)
    try:
        positions_moved = np.asarray(apply(node, marked)[node.outputs.index(v)])
    except Exception:  # the op refuses positions as values
        return None
    if positions_moved.shape != entries.shape:
        return None
    positions = positions_moved[entries].astype("int64") - 1
    flags = np.zeros(x.size, bool)
    flags[positions[(positions >= 0) & (positions < x.size)]] = True
    return flags.reshape(x.shape)


# -- zeros that are infinities of logarithms ---------------------------------------------------------

_THROUGH = {
    "Sum",
    "Mul",
    "Dot",
    "DimShuffle",
    "ExpandDims",
    "Squeeze",
    "Transpose",
    "Reshape",
    "Subtensor",
}
_DEPTH = 12


def behind_log_of_zero(frame: Frame, node: Apply, arisen: Flags) -> dict[Variable, Any]:
    """The infinite logarithms behind a logarithm of 0: ``log(sum(exp(x)))`` where all entries are -inf.

    The entries by variable; empty where the 0 arose in another way.
    """
    if not op_name(node.op).startswith("Log") or len(node.inputs) != 1:
        return {}
    (flags,) = arisen.values()
    x = node.inputs[0]
    value = np.asarray(frame.value(x))
    if np.shape(flags) != value.shape or value.dtype.kind != "f":
        return {}
    infinities: dict[Variable, Any] = {}
    stack = [(x, flags & (value == 0), _DEPTH)]
    while stack:
        v, zeros, depth = stack.pop()
        producer = None if v in frame.roots else v.owner
        if producer is None or depth == 0 or not np.any(zeros):
            continue
        name = op_name(producer.op)
        for k, u in enumerate(producer.inputs):
            inner = np.asarray(frame.value(u))
            if inner.dtype.kind != "f":
                continue
            region = np.broadcast_to(entries_behind(frame, producer, v, k, zeros), inner.shape)
            if name == "Exp":
                infinite = region & np.isneginf(inner)
                if infinite.any():
                    add_flags(infinities, u, infinite)
            elif name in _THROUGH:
                stack.append((u, region & (inner == 0), depth - 1))
    return infinities
