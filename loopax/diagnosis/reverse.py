"""Reverse mode over the values of a run, up to the node at which a cotangent stops being finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from loopax.diagnosis.frames import Frame
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import Entry, Numbers, bad_entries, first_true, is_bad
from loopax.diagnosis.pullbacks import Pullbacks
from loopax.diagnosis.runner import Runner
from loopax.diagnosis.segments import Segments
from loopax.facts.elementwise import is_elementwise
from loopax.ir.derivatives.inner_gradients import is_float

# Pullbacks of this many nodes of a loop run one by one, some 200 us each. A longer loop goes back by
# compiled segments of _STEPS steps; a segment whose result is not finite runs again, one by one.
_NODES = 2_000
_STEPS = 512


class NotFinite(Exception):
    """Raised where the pullback of ``node`` maps finite cotangents to a nonfinite one for operand ``k``."""

    def __init__(
        self, frame: Frame, node: Apply, k: int, pulled: Numbers, cotangents: Sequence[Any]
    ) -> None:
        super().__init__(str(node.op))
        self.frame, self.node, self.k, self.pulled = frame, node, k, pulled
        self.entry: Entry | None = first_true(bad_entries(pulled))
        self.cotangents = cotangents


class Reverse:
    """Pull cotangents back through frames.

    With ``guards`` a cotangent of 0 stays 0 through an elementwise op, as it does in a compiled program
    through a branch that was not taken.
    """

    def __init__(self, runner: Runner, guards: bool) -> None:
        self.runner, self.guards = runner, guards
        self.pullbacks = Pullbacks(runner.build)

    def pull(self, frame: Frame, cotangents: Sequence[Any], moving: Sequence[bool]) -> list[Any]:
        """Pull ``cotangents`` of the outputs of ``frame`` back to its inputs; None where there is none.

        ``moving`` flags the inputs by which the program is differentiated.

        Raises `NotFinite` if a cotangent stops being finite: raised at the first such node.
        """
        sums: dict[Variable, Any] = {}
        for v, g in zip(frame.graph.outputs, cotangents, strict=True):
            _add(sums, v, g)
        moving_variables = {v for v, m in zip(frame.graph.inputs, moving, strict=True) if m}
        for node in frame.order:
            if any(v in moving_variables for v in node.inputs):
                moving_variables.update(v for v in node.outputs if is_float(v))
        for node in reversed(frame.order):
            arrived = [None if v in frame.roots else sums.pop(v, None) for v in node.outputs]
            needed = [v in moving_variables and is_float(v) for v in node.inputs]
            if not any(needed) or all(g is None for g in arrived):
                continue
            pulled = self._through(frame, node, arrived, needed)
            for k, (v, g) in enumerate(zip(node.inputs, pulled, strict=True)):
                if g is None or not needed[k]:
                    continue
                if is_bad(g) and not any(map(is_bad, arrived)):
                    raise NotFinite(frame, node, k, g, arrived)
                _add(sums, v, g)
        return [sums.get(v) for v in frame.graph.inputs]

    def _through(
        self, frame: Frame, node: Apply, arrived: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        run = frame.inside.get(node)
        if isinstance(run, LoopRun):
            return self._through_loop(run, arrived, needed)
        if isinstance(run, Frame) and getattr(node.op, "rule", None) is None:
            lead = len(node.inputs) - len(run.graph.inputs)  # the condition
            return [None] * lead + self.pull(run, arrived, needed[lead:])
        values = [frame.value(v) for v in node.inputs]
        try:
            pulled = self.pullbacks.pull_node(node, values, arrived)
        except NotImplementedError:  # the user's own call reports it
            return [None] * len(values)
        if self.guards:
            pulled = [_guarded(node, g, arrived) for g in pulled]
        return pulled

    def _through_loop(
        self, loop: LoopRun, arrived: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        scan = loop.scan
        outs = scan.split_outputs(arrived)
        back = _Back(self, loop, needed, list(outs.finals), list(outs.traces))
        segments = self.runner.segments(scan)
        n, cost = loop.n_done, len(list(loop.body.toposort())) * loop.n_done
        if cost <= _NODES or not segments.can_be_compiled or scan.options.truncate_gradient >= 0:
            back.steps(0, n)
        else:
            for start in reversed(range(0, n, _STEPS)):
                back.segment(segments, start, min(_STEPS, n - start))
        return [None, *back.rows, *back.states, *back.consts]


class _Back:
    """Cotangents of one loop during the pass back through its steps."""

    def __init__(
        self,
        reverse: Reverse,
        loop: LoopRun,
        needed: Sequence[bool],
        states: list[Any],
        traces: list[Any],
    ) -> None:
        self.reverse, self.loop = reverse, loop
        needed_args = loop.scan.split_inputs(needed)
        args = loop.scan.args
        floats = [is_float(v) for v in args.states]
        # A state moves if any input does: each step reads the states of the step before.
        anything = any(needed)
        self.moving = [
            False,
            *needed_args.sequences,
            *(f and anything for f in floats),
            *needed_args.consts,
        ]
        self.states = [
            np.zeros_like(x) if g is None and f else g
            for x, g, f in zip(loop.args.states, states, floats, strict=True)
        ]
        self.traces = traces
        self.rows: list[Any] = [None] * len(loop.args.sequences)
        self.consts: list[Any] = [None] * len(loop.args.consts)

    def _trace_rows(self, start: int, count: int) -> list[Any]:
        """Cotangents of the trace rows of ``count`` steps, in the order of the steps."""
        direction = -1 if self.loop.scan.options.reverse else 1
        return [None if g is None else g[::direction][start : start + count] for g in self.traces]

    def steps(self, start: int, stop: int) -> None:
        """Go back through steps one by one."""
        scan, limit = self.loop.scan, self.loop.scan.options.truncate_gradient
        for k in reversed(range(start, stop)):
            if 0 <= limit <= self.loop.n_done - 1 - k:
                self.states = [None if g is None else np.zeros_like(g) for g in self.states]
                return
            frame = self.loop.frame(k)
            rows = [None if g is None else g[0] for g in self._trace_rows(k, 1)]
            outs = [*self.states, *rows, *([None] if scan.stops else [])]
            pulled = scan.split_body_inputs(self.reverse.pull(frame, outs, self.moving))
            self._take(self.loop.row_of(k), pulled.rows, pulled.states, pulled.consts)

    def segment(self, segments: Segments, start: int, count: int) -> None:
        """Go back through ``count`` steps by compiled code, or one by one where that is not finite."""
        loop, scan = self.loop, self.loop.scan
        inputs = segments.inputs(loop.args, start, count, loop.states_before(start))
        rows = [
            None if g is None else np.ascontiguousarray(g) for g in self._trace_rows(start, count)
        ]
        end = [None, None] if scan.stops else []
        cotangents = [*self.states, *rows, *[None] * scan.n_states, *end]
        pulled = self.reverse.pullbacks.pull_segment(segments, inputs, cotangents)
        args = segments.loop.split_inputs(pulled)
        moving_cotangents = [
            g
            for g, m in zip(
                [*args.sequences, *args.states, *args.consts[:-1]], self.moving[1:], strict=True
            )
            if m
        ]
        if any(is_bad(g) for g in moving_cotangents if g is not None):
            self.steps(start, start + count)
            return
        self._take(slice(start, start + count), args.sequences, args.states, args.consts[:-1])

    def _take(
        self,
        at: int | slice,
        rows: Sequence[np.ndarray | None],
        states: Sequence[np.ndarray | None],
        consts: Sequence[np.ndarray | None],
    ) -> None:
        for j, g in enumerate(rows):
            if g is not None:
                if self.rows[j] is None:
                    self.rows[j] = np.zeros_like(self.loop.args.sequences[j])
                if isinstance(at, slice):
                    direction = -1 if self.loop.scan.options.reverse else 1
                    self.rows[j][::direction][at] += g
                else:
                    self.rows[j][at] += g
        zeros = [None if g is None else np.zeros_like(g) for g in self.states]
        self.states = [z if g is None else g for g, z in zip(states, zeros, strict=True)]
        for j, g in enumerate(consts):
            if g is not None:
                self.consts[j] = g if self.consts[j] is None else self.consts[j] + g


def _add(sums: dict[Variable, Any], v: Variable, g: Numbers | None) -> None:
    if g is not None and is_float(v):
        sums[v] = g if v not in sums else sums[v] + g


def _guarded(node: Apply, g: Numbers | None, arrived: Sequence[Any]) -> Any:
    """``g`` with 0 where the cotangent of the output is 0."""
    if g is None or (
        not is_elementwise(node) or arrived[0] is None or np.shape(g) != np.shape(arrived[0])
    ):
        return g
    return np.where(np.equal(arrived[0], 0), 0, g).astype(np.asarray(g).dtype)
