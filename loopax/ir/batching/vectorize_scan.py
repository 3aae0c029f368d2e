"""Scan over batched inputs -> one Scan over batched states, never a loop over the batch.

The set of batched states is a fixpoint: states whose start is batched, then states that the step
computes from batched ones. Outside, batch axes come first; inside, the axis of steps of a sequence or
a trace does. All batched values of a loop have the batch's full shape, because a state cannot change
its shape.

Rows may stop after different numbers of steps: a row that has stopped keeps its states, the loop goes
on until all have, and a trace is as long as the longest row, with zeros after the end of a shorter
one (``n_done`` has a number for each).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import vectorize_rules
from loopax.ir.batching.batch import Batch, greatest, is_batched, vectorized
from loopax.ir.batching.row_loop import row_by_row
from loopax.ir.batching.row_values import row_value
from loopax.ir.batching.value_lengths import EQUAL_STEPS, may_stack_lengths
from loopax.ir.ops.bounds import split_bound
from loopax.ir.ops.calling_convention import BodyArgs, BodyOuts, ScanArgs
from loopax.ir.ops.inner_graph_op import nodes_within
from loopax.ir.ops.scan import Scan
from loopax.ir.ops.trace import stacked
from loopax.ir.sequences import with_items


@vectorize_rules.register(Scan)
def vectorize_scan(op: Scan, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    batch = Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    return _BatchedScan(
        op, op.split_inputs(inputs), op.split_inputs(batch.batched), batch
    ).outputs()


class _BatchedScan:
    def __init__(self, op: Scan, args: ScanArgs, batched: ScanArgs, batch: Batch) -> None:
        self.op, self.args, self.batched, self.batch = op, args, batched, batch
        self.body = op.unfrozen()
        self.inner: BodyArgs = op.split_body_inputs(self.body.inputs)
        self.n_steps, self.go, self.lengths = self._number_of_steps()
        self.states = list(batched.states)
        self.replace: dict[Any, Any] = {}
        counts = TensorType("int64", batch.static)
        self.count, self.limits = counts("count"), counts("limits")
        if self.lengths is not None and op.options.reverse:
            # Each row counts down from its own last step. A finished row stays at row 0.
            self.replace[self.inner.i] = pt.maximum(self.limits - 1 - self.count, 0)
        for group, flags in (
            (self.inner.rows, batched.sequences),
            (self.inner.consts, batched.consts),
        ):
            for v, flag in zip(group, flags, strict=True):
                self.replace[v] = batch.type(v.type)() if flag else v

    def _number_of_steps(self) -> tuple[Any, Any, Any]:
        """The trip count of the longest row; if rows differ, which rows run, and the trip count of each."""
        n = self.args.n_steps
        if not self.batched.n_steps:
            return n, None, None
        if (row := row_value(n, n.type.ndim)) is not None:
            return row, None, None
        if self.args.sequences:  # these have one length, so all rows take as many steps
            longest = EQUAL_STEPS(greatest(n), pt.all(pt.eq(n, greatest(n))))
            return self._unless_empty(longest), None, None
        bound, go = split_bound(n)
        if go is not None and (row := row_value(bound, bound.type.ndim)) is not None:
            return row, go, None
        return greatest(n), None, n

    def _unless_empty(self, n: Any) -> Any:
        """Replace ``n`` in a batch without rows, where it is unknown, by the length of the sequences."""
        if not self.args.sequences or (
            None not in self.batch.static and 0 not in self.batch.static
        ):
            return n
        row, x = self.inner.rows[0], self.args.sequences[0]
        length = x.shape[x.type.ndim - stacked(row.type).ndim] if hasattr(x, "shape") else n
        return pt.switch(pt.any([pt.eq(k, 0) for k in self.batch.shape]), length, n)

    def outputs(self) -> list[Any]:
        batched_outs = self._fixpoint()
        row_stops = self.op.stops and is_batched(batched_outs[-1], self.body.outputs[-1])
        if row_stops or self.go is not None or self.lengths is not None:
            self.states = [isinstance(s.type, TensorType) for s in self.inner.states]
            return self._masked(self._by_rows(self._fixpoint()), row_stops)
        outs = self.op.split_body_outputs(batched_outs)
        nexts = self._nexts(outs.states)
        return self._bind(self.op, BodyOuts(nexts, outs.ys, outs.stop), [])

    def _fixpoint(self) -> list[Any]:
        """The batched outputs of the body. It terminates, since each round adds a state."""
        for _ in range(len(self.states) + 1):
            for v, flag in zip(self.inner.states, self.states, strict=True):
                self.replace[v] = self.batch.type(v.type)() if flag else v
            outs = vectorized(self.body.outputs, self.replace)
            flags = [
                flag or is_batched(out, v)
                for flag, out, v in zip(self.states, outs, self.inner.states, strict=False)
            ]
            if flags == self.states:
                return outs
            self.states = flags
        raise AssertionError("a state became unbatched")

    def _by_rows(self, batched_outs: list[Any]) -> list[Any]:
        """Compute the step row by row if ``batched_outs`` stack rows that may differ in length."""
        batches = [x for v, x in self.replace.items() if x is not v]
        if (
            self.batch.ndim != 1
            or not any(map(may_stack_lengths, nodes_within(batches, batched_outs)))
            # A generator is shared by all rows, which would draw the same numbers.
            or not all(isinstance(v.type, TensorType) for v in self.body.inputs)
        ):
            return batched_outs
        pairs = enumerate(zip(batched_outs, self.body.outputs, strict=True))
        by_row = [k for k, (out, core) in pairs if is_batched(out, core)]
        rows = {v: self.replace.get(v, v) for v in self.body.inputs}
        n = self.batch.inside(batches[0]).shape[0]
        outs = row_by_row([self.body.outputs[k] for k in by_row], rows, n, self.op.options.name)
        return with_items(batched_outs, by_row, outs)

    def _nexts(self, states: Sequence[Variable]) -> list[Any]:
        batched = next((x for v, x in self.replace.items() if x is not v), None)
        inside = self.batch if batched is None else self.batch.inside(batched)
        return inside.all_full(states, self.inner.states, self.states)

    def _bind(
        self,
        op: Scan,
        outs: BodyOuts,
        extra_states: list[tuple[Any, Any]],
        consts: Sequence[Sequence[Variable]] = (),
    ) -> list[Any]:
        """Bind the batched loop with ``extra_states`` and ``consts``; return its outputs."""
        inner, operands, ndim = self.inner, self.args, self.batch.ndim
        loop = Scan.from_body(
            BodyArgs(
                inner.i,
                [self.replace[v] for v in inner.rows],
                [*(v for v, _ in extra_states), *(self.replace[v] for v in inner.states)],
                [*(v for v, _ in consts), *(self.replace[v] for v in inner.consts)],
            ),
            outs,
            op.options,
        )
        sequences = [
            pt.moveaxis(self.batch.full(x, stacked(v.type)), ndim, 0) if flag else x
            for x, v, flag in zip(
                operands.sequences, inner.rows, self.batched.sequences, strict=True
            )
        ]
        starts = self.batch.all_full(operands.states, inner.states, self.states)
        full_consts = self.batch.all_full(operands.consts, inner.consts, self.batched.consts)
        args = ScanArgs(
            self.n_steps,
            sequences,
            [*(x for _, x in extra_states), *starts],
            [*(x for _, x in consts), *full_consts],
        )
        results = loop.split_outputs(loop.bind(args))
        traces = [
            pt.moveaxis(t, 0, ndim)
            if isinstance(y.type, TensorType) and t.type.ndim > y.type.ndim + 1
            else t
            for t, y in zip(results.traces, self.op.outs.ys, strict=True)
        ]
        return results._replace(traces=traces).flat()

    def _masked(self, batched_outs: list[Variable], row_stops: bool) -> list[Any]:
        """The outputs of a loop whose rows end independently."""
        batch, op = self.batch, self.op
        outs = op.split_body_outputs(batched_outs)
        flags, counts = TensorType("bool", batch.static), self.count.type
        is_done, count, limits = flags("done"), self.count, self.limits
        inside = batch.inside(is_done)

        def frozen(next_value: TensorVariable, value: Variable, core: Type) -> Any:
            if not isinstance(core, TensorType):
                return next_value  # a random generator is shared by all rows, and goes on
            mask = pt.expand_dims(is_done, tuple(range(batch.ndim, batch.ndim + core.ndim)))
            return batch.type(core).filter_variable(
                pt.switch(mask, value, inside.full(next_value, core))
            )

        states = [
            frozen(next_state, self.replace[v], v.type)
            for next_state, v in zip(outs.states, self.inner.states, strict=True)
        ]
        ys = [
            frozen(y, pt.zeros((), dtype=c.type.dtype), c.type)
            if isinstance(c.type, TensorType)
            else y
            for y, c in zip(outs.ys, op.outs.ys, strict=True)
        ]
        next_count = count + pt.invert(is_done)
        ended = is_done
        if op.stops:
            ended = is_done | inside.full(outs.stop, op.outs.stop.type)
        consts, start = [], pt.zeros(batch.shape, dtype="bool")
        is_over = pt.zeros_like(is_done)
        if self.go is not None:
            start = pt.invert(batch.full(self.go, TensorType("bool", ())))
        elif self.lengths is not None:
            lengths = batch.full(self.lengths, TensorType("int64", ()))
            consts, start = [(limits, lengths)], lengths <= 0
            is_over = next_count >= limits
        # Distinguishes rows that stopped from rows that took all their steps: both are frozen.
        stopped = flags("stopped")
        extra_states = [
            (is_done, flags.filter_variable(start)),
            (count, counts.filter_variable(pt.zeros(batch.shape, dtype="int64"))),
            (stopped, flags.filter_variable(pt.zeros(batch.shape, dtype="bool"))),
        ]
        now_done = ended | is_over
        nexts = [
            flags.filter_variable(now_done),
            counts.filter_variable(next_count),
            flags.filter_variable(stopped | (ended & pt.invert(is_done))),
            *states,
        ]
        results = self._bind(op, BodyOuts(nexts, ys, pt.all(now_done)), extra_states, consts)
        finals = results[3 : 3 + op.n_states]
        traces = results[3 + op.n_states : 3 + op.n_states + op.n_ys]
        for trace in traces:
            trace.tag.is_padded = True
        return [*finals, *traces, *([results[1], results[2]] if op.stops else [])]
