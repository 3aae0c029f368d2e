"""``LoopRun``: one run of a loop, any step of which can be run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply

from loopax.diagnosis.frames import Failed, Frame, TooLong
from loopax.diagnosis.segments import Segments
from loopax.ir import Scan
from loopax.ir.evaluation.evaluate import own
from loopax.ir.evaluation.run_scan import check_lengths, traces_of
from loopax.ir.ops.calling_convention import UNBOUNDED, ScanOuts
from loopax.ir.shapes import empty_traces

_BYTES = 2**26  # states in memory at a time
_OPEN = 2**14  # steps in a segment of a loop without a bound
_FRAMES = 8  # frames of steps in memory


class _Block(NamedTuple):
    """Consecutive steps: the states before the first, and after each step if they fit in memory."""

    start: int
    length: int
    before: Sequence[Any]
    after: Sequence[Sequence[Any]] | None


class LoopRun:
    """A run of the loop ``node`` of ``frame`` on ``inputs``.

    Steps are numbered in the order in which they are taken.
    """

    def __init__(self, runner: Any, frame: Frame, node: Apply, inputs: Sequence[Any]) -> None:
        self.runner, self.around, self.node = runner, frame, node
        self.scan: Scan = node.op
        self.args = self.scan.split_inputs(inputs)
        self.body = self.scan.written or self.scan.fgraph
        self.n_done = 0
        self._blocks: list[_Block] = []
        self._frames: dict[int, Frame] = {}

    def run(self) -> list[Any]:
        try:
            check_lengths(self.scan, self.args.n_steps, self.args.sequences)
        except ValueError as error:
            raise Failed(self.around, self.node, error) from error
        runner = self.runner
        if runner.remaining is not None:  # in a step of a loop that runs one by one
            return self._one_by_one()
        runner.remaining = runner.budget
        try:
            return self._one_by_one()
        except TooLong:
            pass
        finally:
            runner.remaining = None
        segments = runner.segments(self.scan)
        if not segments.can_be_compiled:
            return self._one_by_one()
        return self._compiled(segments)

    # -- running it ------------------------------------------------------------------------------

    def _one_by_one(self) -> list[Any]:
        scan, args = self.scan, self.args
        self._blocks, self.n_done = [], 0
        states, rows, after, stopped = list(args.states), [], [], False
        n = int(args.n_steps)
        while self.n_done < n and not stopped:
            k = self.n_done
            outs = scan.split_body_outputs(self.runner.run(self._entered(k, states)))
            states, stopped = [own(s) for s in outs.states], bool(outs.stop)
            rows.append([own(y) for y in outs.ys])
            after.append(states)
            self.n_done += 1
        by_state = [list(column) for column in zip(*after, strict=True)] or [[] for _ in states]
        self._blocks = [_Block(0, self.n_done, args.states, by_state)]
        return self._outputs([own(s) for s in states], traces_of(scan, args, rows), stopped)

    def _compiled(self, segments: Segments) -> list[Any]:
        args, scan = self.args, self.scan
        self._blocks, self.n_done = [], 0
        n = int(args.n_steps)
        size = max(1, sum(np.asarray(s).nbytes for s in args.states))
        length = max(1, min(n, _BYTES // size, _OPEN if n == UNBOUNDED else n))
        states, parts, stopped = list(args.states), [], False
        while self.n_done < n and not stopped:
            count = min(length, n - self.n_done)
            try:
                segment = segments.run(args, self.n_done, count, states)
            except Exception as error:
                self._find_failure(segments, states, count, error)
                raise
            is_only = n <= length
            states_by_step = segment.states if is_only else None
            self._blocks.append(_Block(self.n_done, segment.n_done, states, states_by_step))
            parts.append(segment.ys)
            states, stopped = list(segment.finals), segment.stopped
            self.n_done += segment.n_done
        if not parts:
            return self._outputs(states, empty_traces(scan, args), stopped)
        traces = [np.concatenate(ys) for ys in zip(*parts, strict=True)]
        if scan.options.reverse:
            traces = [y[::-1] for y in traces]
        return self._outputs(states, traces, stopped)

    def _find_failure(
        self, segments: Segments, states: Sequence[Any], count: int, error: Exception
    ) -> None:
        """Bisect ``count`` steps for the one that raises; run it node by node, up to `Failed`."""
        good, bad = 0, count
        before = list(states)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                segment = segments.run(self.args, self.n_done + good, middle - good, before)
            except Exception:  # the error of the whole segment
                bad = middle
            else:
                good, before = middle, list(segment.finals)
        frame = self._entered(self.n_done + good, before)
        self.runner.run(frame)
        raise Failed(self.around, self.node, error)

    def _outputs(self, finals: Sequence[Any], traces: Sequence[Any], stopped: bool) -> list[Any]:
        end = (np.asarray(self.n_done), np.asarray(stopped)) if self.scan.stops else ()
        return ScanOuts(finals, traces, *end).flat()

    # -- its steps -------------------------------------------------------------------------------

    def row_of(self, k: int) -> int:
        """The row of the sequences that step ``k`` reads: the ``i`` of the body."""
        return int(self.args.n_steps) - 1 - k if self.scan.options.reverse else k

    def step_of_row(self, row: int) -> int:
        """The step that computed a row of the traces."""
        return self.n_done - 1 - row if self.scan.options.reverse else row

    def states_before(self, k: int) -> Sequence[Any]:
        if k == 0:
            return self.args.states
        block, after = self._block_at(k - 1)
        states = [x[k - 1 - block.start] for x in after]
        return [np.asarray(s) if isinstance(s, np.generic) else s for s in states]

    def first_bad_step(self, j: int, k: int, test: Callable[[Any], Any]) -> int:
        """The first step from which on state ``j`` passes ``test`` up to step ``k``.

        ``test`` maps stacked states to a flag for each; it holds after step ``k``.
        """
        first = k
        while first > 0:
            block, after = self._block_at(first - 1)
            flags = np.asarray(test(np.stack(after[j][: first - block.start])))
            good = np.flatnonzero(~flags)
            if good.size:
                return block.start + int(good[-1]) + 1
            first = block.start
        return first

    def frame(self, k: int) -> Frame:
        """Run step ``k`` node by node, once."""
        if k not in self._frames:
            while len(self._frames) >= _FRAMES:
                self._frames.pop(next(iter(self._frames)))
            frame = self._entered(k, self.states_before(k))
            self.runner.run(frame)
            self._frames[k] = frame
        return self._frames[k]

    def _entered(self, k: int, states: Sequence[Any]) -> Frame:
        i = self.row_of(k)
        rows = [x[i] for x in self.args.sequences]
        rows = [np.asarray(x) if isinstance(x, np.generic) else x for x in rows]
        inputs = [np.asarray(i, "int64"), *rows, *states, *self.args.consts]
        return Frame(self.body, inputs, self.around, self.node, f"step {k}", k)

    def _block_at(self, k: int) -> tuple[_Block, Sequence[Sequence[Any]]]:
        """The block that contains step ``k``, and the states after each of its steps."""
        at = next(j for j, b in enumerate(self._blocks) if b.start <= k < b.start + b.length)
        block = self._blocks[at]
        if block.after is None:
            segments = self.runner.segments(self.scan)
            after = segments.run(self.args, block.start, block.length, block.before).states
            for j, other in enumerate(self._blocks):  # memory holds the states of one block
                if other.after is not None:
                    self._blocks[j] = other._replace(after=None)
            block = self._blocks[at] = block._replace(after=after)
        assert block.after is not None
        return block, block.after
