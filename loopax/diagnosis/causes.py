"""The way back from a number that is not finite to where the first one arose."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.blockwise import Blockwise

from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import Entry, bad_entries, kind_of, same_kind
from loopax.diagnosis.places import Place, operand
from loopax.diagnosis.runner import Runner
from loopax.ir import Call, Cond, Scan

_MOST = 100_000  # places on a way; there are as many as nodes between the cause and the output


def way_from_cause(runner: Runner, place: Place) -> list[Place]:
    """The places that lead to ``place``, the cause first; none of them is finite.

    The cause is the first number that was not finite, or a node that raised. No operand of it is
    infinite or nan, unless it is a constant.
    """
    way = [place]
    while len(way) < _MOST:
        earlier = _before(runner, way[-1])
        if earlier is None:
            break
        way.append(earlier)
    if isinstance(way[-1].variable, Constant) and len(way) > 1:
        way.pop()  # nobody computed it: what reads it comes first
    return way[::-1]


def where_it_became_nan(way: list[Place]) -> Place | None:
    """Of a way that begins with an infinity the first place that is nan."""
    if not way[0].kind or way[0].kind == "nan":
        return None
    return next((p for p in way if p.kind == "nan"), None)


def _before(runner: Runner, place: Place) -> Place | None:
    """The place that this one's number comes from; None where it arose here."""
    frame, v, entry = place
    if isinstance(v, Constant):
        return None
    node = place.node
    if node is None:
        return _outside(place)
    run = frame.inside.get(node)
    k = node.outputs.index(v)
    if isinstance(run, LoopRun):
        return _in_loop(place, run, k)
    if isinstance(run, Frame):
        return Place(run, run.graph.outputs[k], entry)
    op: Any = node.op
    if isinstance(op, Blockwise) and isinstance(op.core_op, Call) and entry is not None:
        n = op.batch_ndim(node)
        row = runner.row(frame, node, entry[:n])
        if row is not None:
            return Place(row, row.graph.outputs[k], entry[n:])
    return operand(place)


def _outside(place: Place) -> Place | None:
    """Where an input of a frame comes from."""
    frame, v, entry = place
    node, parent = frame.node, frame.parent
    if node is None or parent is None:
        return None
    k = frame.roots[v]
    op: Any = node.op
    if isinstance(op, Cond):
        return Place(parent, node.inputs[1 + k], entry)
    if isinstance(op, Blockwise):
        return Place(parent, node.inputs[k], _in_batch(frame, node, k, entry))
    if not isinstance(op, Scan):
        return Place(parent, node.inputs[k], entry)
    loop: LoopRun = parent.inside[node]
    first_state = 1 + op.n_seqs
    if 1 <= k < first_state:
        at_row = None if entry is None else (loop.row_of(frame.number), *entry)
        return Place.bad(parent, node.inputs[k], at_row)
    if first_state <= k < first_state + op.n_states and frame.number > 0:
        return _state(loop, k - first_state, frame.number - 1, entry, place.number)
    return Place(parent, node.inputs[k], entry)


def _in_batch(frame: Frame, node: Apply, k: int, entry: Entry | None) -> Entry | None:
    """The entry of a batch that ``entry`` of its row is."""
    assert frame.parent is not None
    op: Any = node.op
    shape = np.shape(frame.parent.value(node.inputs[k]))[: op.batch_ndim(node)]
    if entry is None:
        return None
    return (*(j % n for j, n in zip(frame.row, shape, strict=True)), *entry)


def _in_loop(place: Place, loop: LoopRun, k: int) -> Place | None:
    """Where an output of a loop comes from."""
    scan, entry = loop.scan, place.entry
    if k < scan.n_states:
        if loop.n_done == 0:
            return Place(place.frame, loop.node.inputs[1 + scan.n_seqs + k], entry)
        return _state(loop, k, loop.n_done - 1, entry, place.number)
    if not entry:
        return None
    frame = loop.frame(loop.step_of_row(entry[0]))
    return Place.bad(frame, loop.body.outputs[k], entry[1:])


def _state(loop: LoopRun, j: int, step: int, entry: Entry | None, number: Any) -> Place:
    """State ``j`` after the first of the steps up to ``step`` since which it has been what it is."""
    is_number = entry is not None and np.ndim(number) == 0
    bad = same_kind(kind_of(number)) if is_number else bad_entries

    def test(states: Any) -> Any:
        flags = bad(states[(slice(None), *(entry or ()))] if is_number else states)
        return flags.reshape(len(states), -1).any(axis=1)

    first = loop.first_bad_step(j, step, test)
    return Place.bad(loop.frame(first), loop.body.outputs[j], entry)
