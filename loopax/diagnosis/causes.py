"""Search from nonfinite outputs back to the first nonfinite number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.blockwise import Blockwise

from loopax.diagnosis.contributions import (
    Flags,
    add_flags,
    bad_flags,
    behind_log_of_zero,
    contributions,
)
from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import Numbers, first_true
from loopax.diagnosis.places import Place
from loopax.diagnosis.runner import Runner
from loopax.ir import Call

_ROWS = 4  # searched rows of a batch of graphs
_JUMPS = 1000  # searched steps of one loop


@dataclass(frozen=True)
class Cause:
    """A nonfinite number that was computed from finite numbers alone.

    ``key`` orders causes by time of computation, an input by its first read. ``relevant`` holds the
    frames around the place, innermost first, with the flags of the values that followed in each.
    """

    place: Place
    key: tuple[Any, ...]
    relevant: tuple[tuple[Frame, Flags], ...]


def causes(
    runner: Runner, frame: Frame, bad_outputs: Flags, *, through: bool = True
) -> list[Cause]:
    """Causes of the flagged entries of variables of the program ``frame``, in the order of computation.

    Without ``through`` a nan computed from infinities is a cause of its own.
    """
    sources, inputs, flags = _Search(runner, through).in_frame(frame, bad_outputs)
    for v, (entries, key) in inputs.items():
        place = Place(
            frame, v, first_true(entries) if entries.shape == np.shape(frame.value(v)) else None
        )
        sources.append(Cause(place, key, ((frame, flags),)))
    return sorted(sources, key=lambda cause: cause.key)


# By input of a frame: the entries that were read, and the key of the first read.
Inputs = dict[Variable, tuple[Any, tuple[Any, ...]]]


class _Search:
    def __init__(self, runner: Runner, through: bool) -> None:
        self.runner, self.through = runner, through

    def in_frame(self, frame: Frame, bad_outputs: Flags) -> tuple[list[Cause], Inputs, Flags]:
        """Causes inside of a frame, its bad inputs, and the flags of its relevant variables."""
        relevant: dict[Variable, Any] = {}
        keys: dict[Variable, tuple[Any, ...]] = {}
        end = (len(frame.order),)
        for v, flags in bad_outputs.items():
            if not frame.is_constant(v):
                _merge(relevant, keys, v, flags, (*frame.order_key(None)[:-1], *end))
        sources: list[Cause] = []
        for node in reversed(frame.order):
            outs = {v: relevant[v] for v in node.outputs if v in relevant and v not in frame.roots}
            if not outs:
                continue
            inner, operands = self._behind(frame, node, outs)
            sources += inner
            for v, (flags, key) in operands.items():
                if not frame.is_constant(v):  # a constant is never a cause: its reader is
                    _merge(relevant, keys, v, flags, key)
        sources = [Cause(c.place, c.key, (*c.relevant, (frame, relevant))) for c in sources]
        inputs = {v: (relevant[v], keys[v]) for v in frame.graph.inputs if v in relevant}
        return sources, inputs, relevant

    def _behind(self, frame: Frame, node: Apply, outs: Flags) -> tuple[list[Cause], Inputs]:
        """Causes at a node or inside of it, and its operands that are not finite."""
        run, op = frame.inside.get(node), node.op
        if isinstance(run, LoopRun):
            return self._in_loop(run, outs)
        if isinstance(run, Frame):
            bad_outputs = {
                run.graph.outputs[node.outputs.index(v)]: flags for v, flags in outs.items()
            }
            sources, inputs, _ = self.in_frame(run, _bad(run, bad_outputs))
            first = len(node.inputs) - len(run.graph.inputs)  # behind the condition
            operands: Inputs = {}
            for k, v in enumerate(run.graph.inputs):
                if v in inputs:
                    _join(operands, node.inputs[first + k], *inputs[v])
            return sources, operands
        if isinstance(op, Blockwise) and isinstance(op.core_op, Call):
            return self._in_rows(frame, node, outs)
        key = frame.order_key(node)
        bad_operands: Inputs = {}
        parts, arose = contributions(frame, node, outs, self.through)
        for k, flags in parts.items():
            _join(bad_operands, node.inputs[k], flags, key)
        if arose and (logarithms := behind_log_of_zero(frame, node, arose)):
            for v, flags in logarithms.items():
                _join(bad_operands, v, flags, key)
            arose = {}
        return [Cause(_place(frame, v, flags), key, ()) for v, flags in arose.items()], bad_operands

    def _in_rows(self, frame: Frame, node: Apply, outs: Flags) -> tuple[list[Cause], Inputs]:
        """Causes in the first bad rows of a batch of graphs, and its operands that are not finite."""
        op: Any = node.op
        n = op.batch_ndim(node)
        sources: list[Cause] = []
        operands: Inputs = {}
        for v, flags in outs.items():
            where = np.argwhere(flags.reshape(*flags.shape[:n], -1).any(axis=-1))
            for at in [tuple(int(k) for k in row) for row in where[:_ROWS]]:
                row = self.runner.row(frame, node, at)
                if row is None:
                    continue
                inner, inputs, _ = self.in_frame(
                    row, _bad(row, {row.graph.outputs[node.outputs.index(v)]: flags[at]})
                )
                sources += inner
                for k, x in enumerate(row.graph.inputs):
                    if x in inputs:
                        whole = np.zeros(np.shape(frame.value(node.inputs[k])), bool)
                        batch = tuple(j % m for j, m in zip(at, whole.shape[:n], strict=True))
                        whole[batch] = inputs[x][0]
                        _join(operands, node.inputs[k], whole, inputs[x][1])
        return sources, operands

    # -- loops -----------------------------------------------------------------------------------

    def _in_loop(self, loop: LoopRun, outs: Flags) -> tuple[list[Cause], Inputs]:
        """Causes in the first step of a loop with a bad requested entry, and its bad operands."""
        scan, node = loop.scan, loop.node
        loop_inputs = scan.split_inputs(node.inputs)
        operands: Inputs = {}
        steps: dict[int, dict[Variable, Any]] = {}  # requested entries by step
        for v, flags in outs.items():
            k = node.outputs.index(v)
            if k < scan.n_states:
                if loop.n_done == 0:
                    _join(operands, loop_inputs.states[k], flags, loop.around.order_key(node))
                else:
                    self._request_state(loop, steps, k, loop.n_done - 1, flags)
            elif k < scan.n_states + scan.n_ys and flags.ndim:
                is_nan = np.isnan(loop.around.value(v))
                for selected in (flags & is_nan, flags & ~is_nan):
                    rows = np.flatnonzero(selected.reshape(len(selected), -1).any(axis=1))
                    if len(rows):
                        step, row = min((loop.step_of_row(int(r)), int(r)) for r in rows)
                        add_flags(steps.setdefault(step, {}), loop.body.outputs[k], selected[row])
        sources: list[Cause] = []
        for _ in range(_JUMPS):
            if not steps:
                break
            # The last step first: it requests states of earlier steps alone.
            step = max(steps)
            frame = loop.frame(step)
            inner, inputs, _ = self.in_frame(frame, _bad(frame, steps.pop(step)))
            sources += inner
            args = scan.split_body_inputs(list(loop.body.inputs))
            for v, x, init in zip(
                args.states, range(scan.n_states), loop_inputs.states, strict=True
            ):
                if v not in inputs:
                    continue
                if step == 0:
                    _join(operands, init, *inputs[v])
                else:
                    self._request_state(loop, steps, x, step - 1, inputs[v][0])
            for v, outer in zip(args.rows, loop_inputs.sequences, strict=True):
                if v in inputs:
                    value = loop.around.value(outer)
                    whole = np.zeros(np.shape(value), bool)
                    whole[loop.row_of(step)] = inputs[v][0]
                    _join(operands, outer, whole, inputs[v][1])
            for v, outer in zip(args.consts, loop_inputs.consts, strict=True):
                if v in inputs:
                    _join(operands, outer, *inputs[v])
        return sources, operands

    def _request_state(
        self,
        loop: LoopRun,
        steps: dict[int, dict[Variable, Any]],
        j: int,
        step: int,
        flags: Numbers,
    ) -> None:
        """Request state ``j`` of the first step since which it has been bad, up to ``step``."""
        after = np.asarray(loop.states_before(step + 1)[j])
        if np.shape(flags) != after.shape:
            flags = bad_flags(after)
        if flags is None or after.dtype.kind not in "fc":
            return
        is_nan = np.isnan(after)
        # A state may have infinite entries all along: a nan is followed to where it became nan.
        for selected, bad in ((flags & is_nan, np.isnan), (flags & ~is_nan, np.isinf)):
            if not selected.any():
                continue

            def test(
                states: np.ndarray, selected: Numbers = selected, bad: Callable[..., Any] = bad
            ) -> Any:
                bad_entries = bad(states)
                return bad_entries[:, selected].any(axis=1) if selected.ndim else bad_entries

            first = loop.first_bad_step(j, step, test)
            now = bad(np.asarray(loop.states_before(first + 1)[j]))
            add_flags(steps.setdefault(first, {}), loop.body.outputs[j], now & selected)


def way_on(cause: Cause) -> list[Place]:
    """Places from a cause to an output of the program, one in each node."""
    way, current = [cause.place], cause.place.variable
    for k, (frame, relevant) in enumerate(cause.relevant):
        clients: dict[Variable, list[Apply]] = {}
        for node in frame.order:
            for v in node.inputs:
                clients.setdefault(v, []).append(node)
        while (after := _next(clients.get(current, ()), relevant)) is not None:
            current = after
            way.append(_place(frame, after, relevant[after]))
        if frame.node is not None and k + 1 < len(cause.relevant):
            around, outer = cause.relevant[k + 1]
            outputs = [v for v in frame.node.outputs if v in outer]
            if not outputs:
                break
            current = outputs[0]
            way.append(_place(around, current, outer[current]))
    return way


def _next(readers: Sequence[Apply], relevant: Flags) -> Variable | None:
    return next((v for node in readers for v in node.outputs if v in relevant), None)


def _bad(frame: Frame, requested: Flags) -> dict[Variable, Any]:
    """The requested entries that are not finite in this frame."""
    bad_flags_by_variable = {}
    for v, flags in requested.items():
        bad = bad_flags(frame.value(v))
        if bad is not None:
            bad_requested = bad & flags if np.shape(flags) == bad.shape else bad
            bad_flags_by_variable[v] = bad_requested if bad_requested.any() else bad
    return bad_flags_by_variable


def _merge(
    relevant: dict[Variable, Any],
    keys: dict[Variable, Any],
    v: Variable,
    flags: Numbers,
    key: tuple[Any, ...],
) -> None:
    add_flags(relevant, v, flags)
    keys[v] = min(keys[v], key) if v in keys else key


def _join(operands: Inputs, v: Variable, flags: Numbers, key: tuple[Any, ...]) -> None:
    if v in operands:
        flags, key = operands[v][0] | flags, min(operands[v][1], key)
    operands[v] = np.asarray(flags), key


def _place(frame: Frame, v: Variable, flags: Numbers) -> Place:
    shape = np.shape(frame.value(v))
    return Place(frame, v, first_true(flags) if np.shape(flags) == shape else None)
