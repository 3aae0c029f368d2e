"""The conversion of ``pytensor.scan``'s Scan to `ir.Scan`.

A legacy Scan is written in terms of buffers: every recurrent output has one that holds its initial
rows, followed by room for the rows of the steps. Here the buffers are taken apart again:

    SIT-SOT, MIT-SOT   a `SlidingWindow` of the last rows, plus a trace of the new one
    MIT-MOT            a `SlidingWindow`, a sequence of the rows that enter it, a trace of rows that leave
    NIT-SOT            a trace
    untraced SIT-SOT   a state
    until's condition  the flag ``stop``; the number of steps becomes a bound

Reads of a buffer in the rest of the graph are replaced by `loopax.importer.legacy_scan.buffers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.variable import TensorVariable

from loopax.base.errors import UnsupportedOpError, describe, source_line
from loopax.importer.legacy_scan import buffers
from loopax.importer.legacy_scan.allocation import initial_rows
from loopax.importer.legacy_scan.buffers import Answer, Loop
from loopax.importer.legacy_scan.lengths import plain, rows_exactly
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, ScanOuts
from loopax.ir.ops.calling_convention import Origin
from loopax.ir.replace import replaced
from loopax.ir.sizes import dims_of
from loopax.ir.windows import may_be_cut, sliding_window


def import_scan(fgraph: FunctionGraph, node: Apply, inner: FunctionGraph) -> dict[Variable, Any]:
    """Replacements in ``fgraph`` that remove ``node``, a legacy Scan.

    ``inner`` is a mutable copy of its inner graph, which has been imported already.

    Raises `UnsupportedOpError` if the loop has MIT-MOT taps that no gradient produces.
    """
    return _Importer(fgraph, node, inner).replacements()


class _Importer:
    def __init__(self, fgraph: FunctionGraph, node: Apply, inner: FunctionGraph) -> None:
        self.fgraph, self.node, self.inner = fgraph, node, inner
        self.op: Any = node.op
        stop = _flag(inner.outputs[-1]) if self.op.info.as_while else None
        dims = dims_of(fgraph)
        self.loop = Loop(pt.lscalar("i"), plain(node.inputs[0], dims), dims, stop)
        self.taps: dict[Variable, Any] = {}  # inner input that is a tap -> row of a window

    def replacements(self) -> dict[Variable, Any]:
        op, loop = self.op, self.loop
        for var, seq in zip(
            op.inner_seqs(self.inner.inputs), op.outer_seqs(self.node.inputs), strict=True
        ):
            loop.rows.append((var, rows_exactly(seq, loop.n_steps, loop.dims)))
        outputs = iter(self.node.outputs)
        answers: list[Answer] = []
        for plan in (self._mit_mots, self._sots, self._nit_sots, self._untraced):
            answers += plan(outputs)
        assert next(outputs, None) is None, op.info
        outs = self._build()
        values = {answer.variable: answer.value(outs) for answer in answers}
        for old, new in values.items():
            if new.owner is not None:  # created by loopax
                new.name = new.name or old.name  # for messages
        return values

    def _build(self) -> ScanOuts:
        op, loop = self.op, self.loop
        loop.consts += zip(
            op.inner_non_seqs(self.inner.inputs), op.outer_non_seqs(self.node.inputs), strict=True
        )
        consts, operands = _unzip(loop.consts)
        body = BodyOuts(loop.next_states, loop.ys, loop.stop)
        # The taps are still roots of the step's graph: replace them by the rows of the windows.
        flat = replaced(body.flat(), self.taps)
        n, stops = len(loop.states), loop.stop is not None
        nexts = [v.type.filter_variable(x) for (v, _), x in zip(loop.states, flat[:n], strict=True)]
        rows, sequences = _unzip(loop.rows)
        states, inits = _unzip(loop.states)
        scan = Scan.from_body(
            BodyArgs(loop.i, rows, states, consts),
            BodyOuts(nexts, flat[n : n + len(loop.ys)], flat[-1] if stops else None),
            ScanOptions(
                op.name, truncate_gradient=op.truncate_gradient, origin=Origin(line=self._line())
            ),
        )
        bound = scan.bind(ScanArgs(loop.n_steps, sequences, inits, operands))
        outs = scan.split_outputs(bound)
        return outs if stops else outs._replace(n_done=loop.n_steps)

    def _line(self) -> str:
        """The line that wrote the loop: the innermost line outside of PyTensor."""
        return next(filter(None, map(source_line, self.node.outputs)), "")

    # -- one method for each kind of output, in the order of the legacy Scan's outputs -----------

    def _mit_mots(self, outputs: Iterator[Any]) -> list[Answer]:
        op, inner = self.op, self.inner
        answers: list[Answer] = []
        for ins, outs, variables, values, buffer in zip(
            op.info.mit_mot_in_slices,
            op.info.mit_mot_out_slices,
            op.inner_mitmot_grouped(inner.inputs),
            op.inner_mitmot_outs_grouped(inner.outputs),
            op.outer_mitmot(self.node.inputs),
            strict=True,
        ):
            answers += self._mit_mot(next(outputs), ins, outs, variables, values, buffer)
        return answers

    def _mit_mot(
        self,
        out: Variable,
        ins: Sequence[int],
        outs: Sequence[int],
        variables: Sequence[Variable],
        values: Sequence[Variable],
        buffer: TensorVariable,
    ) -> list[Answer]:
        # Step t of the legacy loop reads rows p+t+tap for the taps in `ins` and writes rows p+t+tap for
        # `outs`, with one offset p = -min(ins). In all it touches rows p+t+low to p+t+high: a window of
        # high-low+1 rows, whose highest row enters at this step.
        low, high = min(*ins, *outs), max(*ins, *outs)
        first, size = low - min(ins), high - low
        if first < 0 or min(ins) > 0:
            raise UnsupportedOpError(
                f"{self.op} has MIT-MOT taps {tuple(ins)} in and {tuple(outs)} out, for "
                f"{describe(out)}, which read rows outside of its buffer. `pytensor.grad` makes no "
                "such loop: use its result, or write the recurrence with `outputs_info`."
            )
        loop = self.loop
        entering = variables[0].type()
        loop.rows.append((entering, rows_exactly(buffer[first + size :], loop.n_steps, loop.dims)))
        w = sliding_window(buffer[first : first + size], size, entering.type, loop.i)
        for tap, var in zip(ins, variables, strict=True):
            self.taps[var] = w.read(tap - low) if tap < high else entering
        written = {tap - low: value for tap, value in zip(outs, values, strict=True)}
        leaving = written[0] if 0 in written else (w.read(0) if size else entering)
        written.setdefault(size, entering)
        at = loop.add_window(w, written)
        return buffers.answer_mit_mot(self.fgraph, loop, out, w, at, leaving, buffer, first)

    def _sots(self, outputs: Iterator[Any]) -> list[Answer]:
        op, inner, outer = self.op, self.inner, self.node.inputs
        several = (
            op.info.mit_sot_in_slices,
            op.inner_mitsot_grouped(inner.inputs),
            op.inner_mitsot_outs(inner.outputs),
            op.outer_mitsot(outer),
        )
        single = (
            op.info.sit_sot_in_slices,
            [[v] for v in op.inner_sitsot(inner.inputs)],
            op.inner_sitsot_outs(inner.outputs),
            op.outer_sitsot(outer),
        )
        answers: list[Answer] = []
        for taps, variables, value, buffer in [
            *zip(*several, strict=True),
            *zip(*single, strict=True),
        ]:
            answers += self._sot(next(outputs), taps, variables, value, buffer)
        return answers

    def _sot(
        self,
        out: Variable,
        taps: Sequence[int],
        variables: Sequence[Variable],
        value: Variable,
        buffer: TensorVariable,
    ) -> list[Answer]:
        # The buffer starts with the rows for times -size to -1; step t reads the rows for times t+tap and
        # computes the row for time t, row `size` of its window.
        op, size, loop = self.op, -min(taps), self.loop
        start = initial_rows(buffer, size, self.loop.dims)
        row_type, anchor = variables[0].type, None
        if may_be_cut(size, row_type, op.truncate_gradient):
            anchor = row_type.clone(shape=(size, *row_type.shape))()
            loop.consts.append((anchor, start))
        w = sliding_window(start, size, row_type, loop.i, anchor)
        for tap, var in zip(taps, variables, strict=True):
            self.taps[var] = w.read(size + tap)
        at = loop.add_window(w, {size: value})
        return buffers.answer_sot(self.fgraph, loop, out, w, at, value, buffer, start)

    def _nit_sots(self, outputs: Iterator[Any]) -> list[Answer]:
        op = self.op
        answers: list[Answer] = []
        for value, length in zip(
            op.inner_nitsot_outs(self.inner.outputs), op.outer_nitsot(self.node.inputs), strict=True
        ):
            answers += buffers.answer_nit_sot(self.fgraph, self.loop, next(outputs), value, length)
        return answers

    def _untraced(self, outputs: Iterator[Any]) -> list[Answer]:
        op, inner = self.op, self.inner
        answers: list[Answer] = []
        for var, init, value in zip(
            op.inner_untraced_sit_sot(inner.inputs),
            op.outer_untraced_sit_sot(self.node.inputs),
            op.inner_untraced_sit_sot_outs(inner.outputs),
            strict=True,
        ):
            k = self.loop.add_states([var], [init], [value]).start
            answers.append(Answer(next(outputs), lambda outs, k=k: outs.finals[k]))
        return answers


def _unzip(pairs: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def _flag(condition: Variable) -> Any:
    """Convert the condition of ``until`` to a flag: PyTensor ends the loop when it is not zero."""
    return condition if condition.type.dtype == "bool" else pt.neq(condition, 0)
