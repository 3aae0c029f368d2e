"""Trace a 0 back to its origin: the op in which a probability underflowed.

A sum, a product or a part of zeros inherits its 0. A product of numbers that are not 0, or
``exp(-800)``, is the origin of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.diagnosis.contributions import entries_behind
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import first_true
from loopax.diagnosis.origin import op_name
from loopax.diagnosis.places import Place
from loopax.facts import Structure, facts_of

_PRODUCTS = frozenset({"Mul", "Dot", "BatchedDot", "Matmul", "True_div"})
_NODES = 500  # the most that a trace follows

# A variable of a frame, and flags of entries that are all 0.
_Zeros = tuple[Frame, Variable, Any]


def first_zero(place: Place) -> Place:
    flags = np.zeros(np.shape(place.value), bool)
    if place.entry is None or len(place.entry) != flags.ndim:
        return place
    flags[place.entry] = True
    zeros: _Zeros = place.frame, place.variable, flags
    for _ in range(_NODES):
        before = _before(*zeros)
        if before is None:
            break
        zeros = before
    frame, variable, flags = zeros
    return Place(frame, variable, first_true(flags))


def _before(frame: Frame, v: Variable, flags: np.ndarray) -> _Zeros | None:
    """The zeros of an operand behind the zeros of ``v``; None where they arose here, or in an input."""
    if v in frame.roots:
        return _outside(frame, v, flags)
    node = v.owner
    if node is None:
        return None
    run = frame.inside.get(node)
    if isinstance(run, LoopRun):
        return _in_loop(run, node, v, flags)
    if isinstance(run, Frame):
        return _checked(run, run.graph.outputs[node.outputs.index(v)], flags)
    return _operand(frame, node, v, flags)


def _operand(frame: Frame, node: Apply, v: Variable, flags: np.ndarray) -> _Zeros | None:
    name = op_name(node.op)
    passes_on = name == "Sum" or facts_of(node.op).structure is Structure.MOVES
    if not passes_on and name not in _PRODUCTS:
        return None
    for k, u in enumerate(node.inputs[:1] if name == "True_div" else node.inputs):
        value = np.asarray(frame.value(u))
        if value.dtype.kind != "f":
            continue
        behind = entries_behind(frame, node, v, k, flags)
        if np.shape(behind) != value.shape:
            behind = np.broadcast_to(behind, value.shape)
        if behind.any() and not value[behind].any():
            return frame, u, behind
    return None


def _in_loop(run: LoopRun, node: Apply, v: Variable, flags: np.ndarray) -> _Zeros | None:
    k = node.outputs.index(v)
    if k < run.scan.n_states:
        return _state(run, k, run.n_done - 1, flags)
    if k >= run.scan.n_states + run.scan.n_ys or not np.ndim(flags):
        return None
    rows = np.flatnonzero(flags.reshape(len(flags), -1).any(axis=1))
    step, row = min((run.step_of_row(int(r)), int(r)) for r in rows)
    return _checked(run.frame(step), run.body.outputs[k], flags[row])


def _state(run: LoopRun, k: int, step: int, flags: np.ndarray) -> _Zeros | None:
    """State ``k`` of the first step since which the flagged entries have been 0, up to ``step``."""
    if step < 0:
        return _checked(run.around, run.scan.split_inputs(run.node.inputs).states[k], flags)

    def are_zero(states: np.ndarray) -> Any:
        return (
            ~np.asarray(states)[:, flags].any(axis=1) if np.ndim(flags) else np.asarray(states) == 0
        )

    return _checked(run.frame(run.first_bad_step(k, step, are_zero)), run.body.outputs[k], flags)


def _outside(frame: Frame, v: Variable, flags: np.ndarray) -> _Zeros | None:
    """The zeros of an input of a frame, in the outer frame or the step that computed it."""
    if frame.parent is None or frame.node is None:
        return None
    run, place = frame.parent.inside.get(frame.node), frame.roots[v]
    if not isinstance(run, LoopRun):
        outer = frame.outer(v)
        return None if outer is None else _checked(frame.parent, outer, flags)
    scan = run.scan
    first_state = 1 + scan.n_seqs
    if first_state <= place < first_state + scan.n_states:
        return _state(run, place - first_state, frame.number - 1, flags)
    outer = frame.outer(v)
    if outer is None:  # the number of the step
        return None
    if place < first_state:
        whole = np.zeros(np.shape(frame.parent.value(outer)), bool)
        whole[run.row_of(frame.number)] = flags
        flags = whole
    return _checked(frame.parent, outer, flags)


def _checked(frame: Frame, v: Variable, flags: np.ndarray) -> _Zeros | None:
    """``v`` and the flags where the entries are 0 in this frame; None otherwise, and for constants."""
    if frame.is_constant(v) or v not in frame.values:
        return None
    value = np.asarray(frame.value(v))
    if value.shape != np.shape(flags) or value[flags].any():
        return None
    return frame, v, flags
