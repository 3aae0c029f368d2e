"""Loops and branches over batched inputs: rules for PyTensor's ``vectorize_graph``.

    Scan of batched inputs -> one Scan over batched states, never a loop over the batch

Which states are batched is a fixpoint: those whose start is batched, then those that the step makes
of them. Batch axes stand first outside; inside, the axis of the steps of a sequence or a trace does.
All batched values of a loop have the batch's full shape, because a state cannot change its own.

Rows that stop after different numbers of steps: a row that has stopped keeps its states, the loop
goes on until all have, and a trace is as long as the longest row, zeros behind the end of a shorter
one (``n_done`` has a number for each).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import _vectorize_node, vectorize_graph
from pytensor.raise_op import Assert
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from loopax.ir.compat import thaw
from loopax.ir.cond import Cond
from loopax.ir.loop import Loop
from loopax.ir.records import BodyArgs, BodyOuts, ScanArgs
from loopax.ir.rows import KeepRows
from loopax.ir.scan import Scan
from loopax.ir.trace import stacked


class _Batch:
    """The batch axes of the inputs of one node: how many, and how long."""

    def __init__(self, core: Sequence[Any], given: Sequence[Any]) -> None:
        extra = [
            x.type.ndim - v.type.ndim if isinstance(v.type, TensorType) else 0
            for v, x in zip(core, given, strict=True)
        ]
        self.ndim = max(extra, default=0)
        self.batched = [n > 0 for n in extra]
        rows = [
            pt.zeros([x.shape[k] for k in range(n)], dtype="bool")
            for x, n in zip(given, extra, strict=True)
            if n
        ]
        statics = [x.type.shape[:n] for x, n in zip(given, extra, strict=True) if n]
        self.static = _broadcast_static(statics, self.ndim)
        # Only the shape of this is used: it is the batch's.
        self.shape = [
            n if n is not None else d
            for n, d in zip(self.static, _broadcast_shape(rows, self.ndim), strict=True)
        ]

    def inside(self, batched: Any) -> _Batch:
        """The same batch seen from inside a body, where ``batched`` is a value with all of its axes."""
        found = copy(self)
        found.shape = [batched.shape[k] if n is None else n for k, n in enumerate(self.static)]
        return found

    def type(self, core: Any) -> TensorType:
        """The type of a batched value whose rows have the type ``core``."""
        return TensorType(core.dtype, (*self.static, *core.shape))

    def full(self, x: Any, core: Any) -> Any:
        """``x``, with any of the batch's axes, with all of them in full."""
        extra = x.type.ndim - core.ndim
        if extra == self.ndim and x.type.shape[:extra] == self.static and None not in self.static:
            return x
        trailing = [x.shape[extra + k] for k in range(core.ndim)]
        return self.type(core).filter_variable(pt.broadcast_to(x, [*self.shape, *trailing]))


def _broadcast_static(
    shapes: Sequence[tuple[int | None, ...]], ndim: int
) -> tuple[int | None, ...]:
    result: list[int | None] = []
    for k in range(ndim):
        lengths = {s[k - ndim + len(s)] for s in shapes if k - ndim + len(s) >= 0} - {1}
        result.append(1 if not lengths else (lengths - {None} or {None}).pop())
    return tuple(result)


def _broadcast_shape(rows: Sequence[Any], ndim: int) -> list[Any]:
    if not rows:
        return []
    whole = rows[0] if len(rows) == 1 else pt.broadcast_arrays(*rows)[0]
    return [whole.shape[k] for k in range(ndim)]


def _vectorized(graph: Any, replace: dict[Any, Any]) -> list[Any]:
    changed = {v: x for v, x in replace.items() if v is not x}
    return vectorize_graph(list(graph), replace=changed) if changed else list(graph)


def _is_batched(out: Any, core: Any) -> bool:
    return isinstance(core.type, TensorType) and out.type.ndim > core.type.ndim


# -- Scan --------------------------------------------------------------------------------------------


@_vectorize_node.register(Scan)
def vectorize_scan(op: Scan, node: Apply, *inputs: Any) -> Sequence[Variable]:
    batch = _Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    return _BatchedScan(
        op, op.split_inputs(inputs), op.split_inputs(batch.batched), batch
    ).outputs()


class _BatchedScan:
    def __init__(self, op: Scan, args: ScanArgs, batched: ScanArgs, batch: _Batch) -> None:
        self.op, self.args, self.batched, self.batch = op, args, batched, batch
        self.body = thaw(op.fgraph)
        self.inner: BodyArgs = op.split_body_inputs(self.body.inputs)
        self.n_steps, self.lengths = self._number_of_steps()
        self.states = list(batched.states)
        self.replace: dict[Any, Any] = {}
        for group, flags in (
            (self.inner.rows, batched.sequences),
            (self.inner.consts, batched.consts),
        ):
            for v, flag in zip(group, flags, strict=True):
                self.replace[v] = batch.type(v.type)() if flag else v

    def _number_of_steps(self) -> tuple[Any, Any]:
        """The steps of the longest row, and those of each row where they differ (else None)."""
        n = self.args.n_steps
        if not self.batched.n_steps:
            return n, None
        longest = _greatest(n)
        if _same_in_all_rows(n, n.type.ndim):
            return longest, None
        if self.args.sequences:  # each row has its sequences' length, which is one for all of them
            same = Assert("A batched loop over sequences takes as many steps as they have rows")
            return same(longest, pt.all(pt.eq(n, longest))), None
        return longest, n

    def outputs(self) -> list[Any]:
        batched_outs = self._fixpoint()
        row_stops = self.op.stops and _is_batched(batched_outs[-1], self.body.outputs[-1])
        if row_stops or self.lengths is not None:
            self.states = [isinstance(s.type, TensorType) for s in self.inner.states]
            return self._masked(self._fixpoint(), row_stops)
        outs = self.op.split_body_outputs(batched_outs)
        nexts = self._nexts(outs.states)
        return self._bind(self.op, BodyOuts(nexts, outs.ys, outs.stop), [])

    def _fixpoint(self) -> list[Any]:
        """The batched outputs of the body. Each round adds a state, so that it ends."""
        for _ in range(len(self.states) + 1):
            for v, flag in zip(self.inner.states, self.states, strict=True):
                self.replace[v] = self.batch.type(v.type)() if flag else v
            outs = _vectorized(self.body.outputs, self.replace)
            found = [
                flag or _is_batched(out, v)
                for flag, out, v in zip(self.states, outs, self.inner.states, strict=False)
            ]
            if found == self.states:
                return outs
            self.states = found
        raise AssertionError("a state became unbatched")

    def _nexts(self, states: Sequence[Any]) -> list[Any]:
        batched = next((x for v, x in self.replace.items() if x is not v), None)
        inside = self.batch if batched is None else self.batch.inside(batched)
        return [
            inside.full(s, v.type) if flag else s
            for s, v, flag in zip(states, self.inner.states, self.states, strict=True)
        ]

    def _bind(
        self, op: Scan, outs: BodyOuts, more: list[tuple[Any, Any]], consts: Any = ()
    ) -> list[Any]:
        """The batched loop's outputs; ``more`` are states, ``consts`` constants it has besides."""
        inner, given, ndim = self.inner, self.args, self.batch.ndim
        loop = Scan.from_body(
            BodyArgs(
                inner.i,
                [self.replace[v] for v in inner.rows],
                [*(v for v, _ in more), *(self.replace[v] for v in inner.states)],
                [*(v for v, _ in consts), *(self.replace[v] for v in inner.consts)],
            ),
            outs,
            op.options,
        )
        sequences = [
            pt.moveaxis(self.batch.full(x, stacked(v.type)), ndim, 0) if flag else x
            for x, v, flag in zip(given.sequences, inner.rows, self.batched.sequences, strict=True)
        ]
        starts = [
            self.batch.full(x, v.type) if flag else x
            for x, v, flag in zip(given.states, inner.states, self.states, strict=True)
        ]
        held = [
            self.batch.full(x, v.type) if flag else x
            for x, v, flag in zip(given.consts, inner.consts, self.batched.consts, strict=True)
        ]
        args = ScanArgs(
            self.n_steps,
            sequences,
            [*(x for _, x in more), *starts],
            [*(x for _, x in consts), *held],
        )
        found = loop.split_outputs(loop.bind(args))
        traces = [
            pt.moveaxis(t, 0, ndim)
            if isinstance(y.type, TensorType) and t.type.ndim > y.type.ndim + 1
            else t
            for t, y in zip(found.traces, self.op.outs.ys, strict=True)
        ]
        return found._replace(traces=traces).flat()

    def _masked(self, batched_outs: list[Any], row_stops: bool) -> list[Any]:
        """The loop whose rows end on their own."""
        batch, op = self.batch, self.op
        outs = op.split_body_outputs(batched_outs)
        flags, counts = TensorType("bool", batch.static), TensorType("int64", batch.static)
        done, count, limits = flags("done"), counts("count"), counts("limits")
        inside = batch.inside(done)

        def frozen(new: Any, old: Any, core: Any) -> Any:
            if not isinstance(core, TensorType):
                return new  # a random generator is one for all rows: it goes on
            over = pt.expand_dims(done, tuple(range(batch.ndim, batch.ndim + core.ndim)))
            return batch.type(core).filter_variable(pt.switch(over, old, inside.full(new, core)))

        states = [
            frozen(new, self.replace[v], v.type)
            for new, v in zip(outs.states, self.inner.states, strict=True)
        ]
        ys = [
            frozen(y, pt.zeros((), dtype=c.type.dtype), c.type)
            if isinstance(c.type, TensorType)
            else y
            for y, c in zip(outs.ys, op.outs.ys, strict=True)
        ]
        taken = count + pt.invert(done)
        ended = done
        if op.stops:
            ended = done | inside.full(outs.stop, op.outs.stop.type)
        consts, start = [], pt.zeros(batch.shape, dtype="bool")
        if self.lengths is not None:
            lengths = batch.full(self.lengths, self.args.n_steps.type.clone(shape=()))
            consts, start = [(limits, lengths)], lengths <= 0
            over = taken >= limits
        else:
            over = pt.zeros_like(done)
        # Who stopped, and who only came to an end: the rows are frozen either way.
        stopped = flags("stopped")
        more = [
            (done, flags.filter_variable(start)),
            (count, counts.filter_variable(pt.zeros(batch.shape, dtype="int64"))),
            (stopped, flags.filter_variable(pt.zeros(batch.shape, dtype="bool"))),
        ]
        now_done = ended | over
        nexts = [
            flags.filter_variable(now_done),
            counts.filter_variable(taken),
            flags.filter_variable(stopped | (ended & pt.invert(done))),
            *states,
        ]
        found = self._bind(op, BodyOuts(nexts, ys, pt.all(now_done)), more, consts)
        finals = found[3 : 3 + op.n_states]
        traces = found[3 + op.n_states : 3 + op.n_states + op.n_ys]
        return [*finals, *traces, *([found[1], found[2]] if op.stops else [])]


# -- KeepRows ----------------------------------------------------------------------------------------


@_vectorize_node.register(KeepRows)
def vectorize_keep_rows(op: KeepRows, node: Apply, *inputs: Any) -> Sequence[Variable]:
    """Each row of the batch keeps its own count; all get the greatest of the lengths."""
    batch = _Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    rows, count, length = inputs
    longest = _greatest(length)
    rows = pt.moveaxis(batch.full(rows, node.inputs[0].type), batch.ndim, 0)
    fitted = op(rows, _greatest(count), longest)
    index = pt.arange(longest).dimshuffle(0, *["x"] * batch.ndim)
    count = pt.minimum(count, length)
    over = index >= longest - count if op.last else index < count
    over = over.dimshuffle(*range(over.type.ndim), *["x"] * (rows.type.ndim - over.type.ndim))
    kept = pt.switch(over, fitted, pt.zeros((), dtype=rows.type.dtype))
    return [pt.moveaxis(kept, 0, batch.ndim)]


def _greatest(n: Any) -> Any:
    """The greatest of some lengths; 0 where there are none."""
    return pt.max(pt.concatenate([pt.zeros(1, dtype="int64"), pt.flatten(n)])) if n.type.ndim else n


def _same_in_all_rows(v: Any, ndim: int) -> bool:
    """Whether ``v`` has the same value along its first ``ndim`` axes, as its graph shows.

    So has what follows from the shape of a batched array, which PyTensor broadcasts to the batch.
    """
    if all(n == 1 for n in v.type.shape[:ndim]):
        return True
    if isinstance(v, Constant):
        return bool((v.data == v.data.ravel()[:1]).all()) if v.data.size else True
    if v.owner is None:
        return False
    op, inputs = v.owner.op, v.owner.inputs
    if isinstance(op, Alloc):
        extra = inputs[0].type.ndim - (v.type.ndim - ndim)
        return extra <= 0 or _same_in_all_rows(inputs[0], extra)
    if isinstance(op, Elemwise):
        return all(_same_in_all_rows(x, ndim) for x in inputs)
    if isinstance(op, DimShuffle):
        kept = [k for k in op.new_order[:ndim] if k != "x"]
        return kept == list(range(len(kept))) and _same_in_all_rows(inputs[0], len(kept))
    if isinstance(op, Subtensor):
        whole = all(k == slice(None) for k in op.idx_list[:ndim])
        return len(op.idx_list) >= ndim and whole and _same_in_all_rows(inputs[0], ndim)
    return False


# -- Loop --------------------------------------------------------------------------------------------


@_vectorize_node.register(Loop)
def vectorize_loop(op: Loop, node: Apply, *inputs: Any) -> Sequence[Variable]:
    batch = _Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    body, k = thaw(op.fgraph), op.n_states
    go, given = inputs[0], inputs[1:]
    flags = list(batch.batched[1:])
    # One more state: which rows go on. A row that does not keeps its states.
    flag = TensorType("bool", batch.static)
    going = flag("going")
    flags[:k] = [isinstance(v.type, TensorType) for v in body.inputs[:k]]
    replace = {v: batch.type(v.type)() if f else v for v, f in zip(body.inputs, flags, strict=True)}
    inside = batch.inside(going)
    *outs, keep = _vectorized(body.outputs, replace)
    nexts = []
    for new, v in zip(outs, body.inputs[:k], strict=True):
        if isinstance(v.type, TensorType):
            over = pt.expand_dims(going, tuple(range(batch.ndim, batch.ndim + v.type.ndim)))
            new = pt.switch(over, inside.full(new, v.type), replace[v])
            new = batch.type(v.type).filter_variable(new)
        nexts.append(new)
    still = flag.filter_variable(going & inside.full(keep, op.fgraph.outputs[-1].type))
    loop = Loop.from_body(
        [going, *(replace[v] for v in body.inputs[:k])],
        [replace[v] for v in body.inputs[k:]],
        [still, *nexts],
        pt.any(still),
        op.name,
    )
    first = batch.full(go, node.inputs[0].type)
    starts = [
        batch.full(x, v.type) if f else x for x, v, f in zip(given, body.inputs, flags, strict=True)
    ]
    return loop.bind(pt.any(first), [first, *starts[:k]], starts[k:])[1:]


# -- Cond --------------------------------------------------------------------------------------------


@_vectorize_node.register(Cond)
def vectorize_cond(op: Cond, node: Apply, *inputs: Any) -> Sequence[Variable]:
    """One condition for all rows stays a Cond; one for each row computes both branches and selects."""
    batch = _Batch(node.inputs, inputs)
    if not batch.ndim:
        return op.make_node(*inputs).outputs
    body, n = thaw(op.fgraph), op.n_outs
    replace = {
        v: batch.type(v.type)() if f else v
        for v, f in zip(body.inputs, batch.batched[1:], strict=True)
    }
    condition = inputs[0]
    operands = [
        batch.full(x, v.type) if f else x
        for x, v, f in zip(inputs[1:], body.inputs, batch.batched[1:], strict=True)
    ]
    cores = [v.type for v in node.outputs]
    if batch.batched[0]:
        outs = _vectorized(body.outputs, dict(zip(body.inputs, operands, strict=True)))
        return [
            _selected(batch, condition, a, b, core)
            for a, b, core in zip(outs[:n], outs[n:], cores, strict=True)
        ]
    inside = batch.inside(next(x for v, x in replace.items() if x is not v))
    outs = [
        inside.full(out, core) if isinstance(core, TensorType) else out
        for out, core in zip(_vectorized(body.outputs, replace), cores * 2, strict=True)
    ]
    cond = Cond.from_branches([replace[v] for v in body.inputs], outs[:n], outs[n:], op.name)
    return cond.bind(condition, operands)


def _selected(batch: _Batch, condition: Any, a: Any, b: Any, core: Any) -> Any:
    if not isinstance(core, TensorType):
        raise NotImplementedError(
            f"A condition with a value for each row of a batch chooses between two values of type {core}, "
            "which have no rows. Take it out of the branches, or make the condition one for all rows."
        )
    over = pt.expand_dims(
        batch.full(condition, TensorType("bool", ())),
        tuple(range(batch.ndim, batch.ndim + core.ndim)),
    )
    return pt.switch(over, batch.full(a, core), batch.full(b, core))
