"""Which entries of its operands made entries of a result what they are: nan, or infinite.

Everything here is about flags: arrays of bools of the shape of a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import Switch
from pytensor.tensor.elemwise import Elemwise

from loopax.base.upstream.pytensor import IfElse
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.numbers import bad_entries, is_inexact
from loopax.diagnosis.origin import op_name
from loopax.facts import Structure, facts_of
from loopax.ir.evaluation.evaluate import apply

Flags = Mapping[Variable, Any]


def bad_flags(value: Any) -> Any:
    """Where ``value`` is not finite, of its shape; None where it is finite, or cannot be infinite."""
    flags = bad_entries(value)
    if flags is None or not flags.any():
        return None
    return np.asarray(flags) if np.shape(flags) == np.shape(value) else np.asarray(True)


def contributions(
    frame: Frame, node: Apply, wanted: Flags, through: bool
) -> tuple[dict[int, Any], dict[Variable, Any]]:
    """What made ``wanted`` entries of the outputs of ``node`` not finite.

    A nan comes from operands that are nan; where there are none, with ``through``, from infinite ones. What
    an infinity comes from is not finite either.

    Returns
    -------
    By operand its entries that did, and by output the entries that arose here. Constants are no operands.
    """
    found: dict[int, Any] = {}
    arose: dict[Variable, Any] = {}
    for v, flags in wanted.items():
        value = frame.value(v)
        has_entries = is_inexact(value) and np.shape(value) == np.shape(flags)
        is_nan = np.isnan(value) if has_entries else flags
        for some, is_of_nan in ((flags & is_nan, True), (flags & ~is_nan, False)):
            if np.any(some):
                parts, own = _of_kind(frame, node, v, some, is_of_nan, through)
                for k, p in parts.items():
                    found[k] = found[k] | p if k in found else p
                if np.any(own):
                    arose[v] = arose[v] | own if v in arose else own
    return found, arose


def _of_kind(
    frame: Frame, node: Apply, v: Variable, wanted: Any, is_of_nan: bool, through: bool
) -> tuple[dict[int, Any], Any]:
    """`contributions` for entries of one output that are all nan, or all infinite."""
    parts = {k: p for k, p in _read(frame, node, v, wanted).items() if p.any()}
    by_nan = {k: q for k, p in parts.items() if (q := p & _is_nan(frame, node, k)).any()}
    if facts_of(node.op).structure is not Structure.ELEMENTWISE:
        if is_of_nan and (by_nan or not through):
            parts = by_nan
        return parts, wanted if not parts else np.zeros_like(wanted)
    nan = _covered(frame, node, by_nan, wanted)
    if not is_of_nan:
        return parts, wanted & ~_covered(frame, node, parts, wanted)
    if not through:
        return by_nan, wanted & ~nan
    rest = wanted & ~nan
    infinite = (
        {k: p for k, p in _read(frame, node, v, rest).items() if p.any()} if rest.any() else {}
    )
    own = rest & ~_covered(frame, node, infinite, wanted)
    merged = dict(by_nan)
    for k, p in infinite.items():
        merged[k] = merged[k] | p if k in merged else p
    return merged, own


def _covered(frame: Frame, node: Apply, parts: Mapping[int, Any], wanted: Any) -> Any:
    """The entries of an elementwise result that read one of these."""
    covered = np.zeros(np.shape(wanted), bool)
    for k, p in parts.items():
        reads = np.broadcast_to(p, covered.shape)
        op: Any = node.op
        if isinstance(op.scalar_op, Switch):
            condition = np.broadcast_to(
                np.asarray(frame.value(node.inputs[0]), bool), covered.shape
            )
            reads = reads & (condition if k == 1 else ~condition)
        covered |= reads
    return covered


def _is_nan(frame: Frame, node: Apply, k: int) -> Any:
    value = frame.value(node.inputs[k])
    return np.isnan(value) if is_inexact(value) else np.asarray(True)


def _read(frame: Frame, node: Apply, v: Variable, wanted: Any) -> dict[int, Any]:
    """By operand that is not finite somewhere, the entries not finite that ``wanted`` entries read."""
    found = {}
    op: Any = node.op
    for k, x in enumerate(node.inputs):
        bad = None if frame.is_constant(x) else bad_flags(frame.value(x))
        if bad is None or not _is_chosen(frame, node, v, k):
            continue
        if bad.ndim == 0 and np.ndim(frame.value(x)):  # somewhere
            found[k] = bad
            continue
        some = wanted
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, Switch):
            condition = np.broadcast_to(np.asarray(frame.value(node.inputs[0]), bool), wanted.shape)
            some = wanted & (condition if k == 1 else ~condition)
        found[k] = bad & entries_behind(frame, node, v, k, some)
    return found


def _is_chosen(frame: Frame, node: Apply, v: Variable, k: int) -> bool:
    """Whether an operand of a lazy choice was chosen."""
    op: Any = node.op
    if not isinstance(op, IfElse):
        return True
    at = node.outputs.index(v)
    return k == (1 + at if frame.value(node.inputs[0]) else 1 + op.n_outs + at)


def entries_behind(frame: Frame, node: Apply, v: Variable, k: int, wanted: Any) -> Any:
    """The entries of operand ``k`` that ``wanted`` entries of the output ``v`` follow from."""
    value = frame.value(node.inputs[k])
    shape = np.shape(value)
    if facts_of(node.op).structure is Structure.MOVES:
        moved = _moved(frame, node, v, k, wanted)
        if moved is not None:
            return moved
    axes = facts_of(node.op).axes(node) if node.outputs[0] is v else None
    if axes is None or len(axes) <= k or len(axes[k]) != np.ndim(wanted):
        return np.asarray(True)
    kept = [(axis, o) for o, axis in enumerate(axes[k]) if axis is not None]
    gone = tuple(o for o, axis in enumerate(axes[k]) if axis is None)
    flags = wanted.any(axis=gone) if gone else wanted
    order = sorted(range(len(kept)), key=lambda j: kept[j][0])
    flags = np.transpose(flags, order)
    full = [1] * len(shape)
    for j in order:
        axis, o = kept[j]
        full[axis] = wanted.shape[o]
    flags = flags.reshape(full)
    for axis, n in enumerate(shape):
        if n == 1 and flags.shape[axis] > 1:
            flags = flags.any(axis=axis, keepdims=True)
    return np.broadcast_to(flags, shape)


def _moved(frame: Frame, node: Apply, v: Variable, k: int, wanted: Any) -> Any:
    """The entries of operand ``k`` that an op moves to ``wanted`` entries; found by moving positions."""
    values = [frame.value(x) for x in node.inputs]
    x = np.asarray(values[k])
    if x.dtype.kind != "f" or x.size >= 2 ** np.finfo(x.dtype).nmant:
        return None
    marked = [np.zeros_like(y) if is_inexact(y) else y for y in values]
    marked[k] = np.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape)
    try:
        moved = np.asarray(apply(node, marked)[node.outputs.index(v)])
    except Exception:  # not these numbers: the shapes then say nothing
        return None
    if moved.shape != wanted.shape:
        return None
    positions = moved[wanted].astype("int64") - 1
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


def behind_log_of_zero(frame: Frame, node: Apply, wanted: Flags) -> dict[Variable, Any]:
    """The infinite logarithms behind a logarithm of 0: ``log(sum(exp(x)))`` where all entries are -inf.

    By variable the entries that are -inf; empty where the 0 is none of those.
    """
    if not op_name(node.op).startswith("Log") or len(node.inputs) != 1:
        return {}
    (flags,) = wanted.values()
    x = node.inputs[0]
    value = np.asarray(frame.value(x))
    if np.shape(flags) != value.shape or value.dtype.kind != "f":
        return {}
    found: dict[Variable, Any] = {}
    stack = [(x, flags & (value == 0), _DEPTH)]
    while stack:
        v, some, depth = stack.pop()
        made = None if v in frame.roots else v.owner
        if made is None or depth == 0 or not np.any(some):
            continue
        name = op_name(made.op)
        for k, u in enumerate(made.inputs):
            inner = np.asarray(frame.value(u))
            if inner.dtype.kind != "f":
                continue
            region = np.broadcast_to(entries_behind(frame, made, v, k, some), inner.shape)
            if name == "Exp":
                infinite = region & np.isneginf(inner)
                if infinite.any():
                    found[u] = found[u] | infinite if u in found else infinite
            elif name in _THROUGH:
                stack.append((u, region & (inner == 0), depth - 1))
    return found
