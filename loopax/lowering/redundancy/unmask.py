"""Derivatives of a loop that stops run over the steps taken, not over all steps up to its bound.

    done, states, traces = Scan(n, if done: the same else: step)
    Scan back(n, traces, if done: the same else: pullback of step)
    ->
    states, traces, n_done = Scan(n, step, until)
    Scan back(n_done, traces, pullback of step)

`ir.derivatives.expand.masked` writes a stopping loop in the first form for the pullback: in JAX the trip
count of a loop with traces must be known at compile time. In other backends, idle steps only cost time. The
stopping loop equals the loop of the value, except for its traces: `merge_loops` merges the two.

Condition: the mask is a state that starts as false, and steps are taken forwards. The traces are read only
for their lengths, for the rows that were made (`KeepRows`), and by a backward loop over the same steps
that does nothing where the mask is true.

Reason: a Newton solver with a bound of 50 steps takes 6.

In the literature: the inverse of if-conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import thaw
from loopax.facts.elementwise import is_elementwise
from loopax.ir import Cond, KeepRows, Scan
from loopax.ir.replace import replaced
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import OpenLoop, State, replace_outputs
from loopax.lowering.redundancy.fold_zeros import Zeros
from loopax.lowering.storage.kept_rows import shape_of


def unmask(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    for node in graph.toposort():
        if node in graph.apply_nodes and isinstance(node.op, Scan):
            _unmask(graph, node)
    map_bodies(graph, unmask)


def _unmask(graph: FunctionGraph, node: Apply) -> None:
    for flag in _flags(node):
        loop = OpenLoop.of(node)
        mask = _Mask.of(loop, loop.states[flag].inner)
        if mask is None or not mask.stays(loop.states[flag]):
            continue
        readers = _readers(graph, node, loop, mask)
        if readers is not None:
            _carry_out(graph, loop, loop.states[flag], mask, readers)
            return


def _flags(node: Apply) -> list[int]:
    """The states that may be a mask, in a forward loop over all steps."""
    op: Any = node.op
    if op.stops or op.options.reverse:
        return []
    states = zip(op.args.states, op.split_inputs(node.inputs).states, strict=True)
    return [k for k, (v, x) in enumerate(states) if _is_flag(v) and _starts(x) is not None]


def _is_flag(v: Variable) -> bool:
    return getattr(v.type, "dtype", None) == "bool" and v.type.ndim == 0


def _starts(flag: Variable) -> Any:
    """The condition that there is a first step, from a flag's initial value; None for other values."""
    if isinstance(flag, Constant):
        return None if flag.data else True
    return flag.owner.inputs[0] if is_elementwise(flag.owner, ps.Invert) else None


class _Mask:
    """A flag of a loop: while it is true, a step does nothing.

    ``cond`` is the one node that tests it, ``counts`` are the states that count the active steps.
    """

    def __init__(self, done: Variable, cond: Apply) -> None:
        op: Any = cond.op
        self.done, self.cond = done, cond
        self.counts: list[State] = []
        self._branches = [thaw(branch) for branch in op.branches]
        self._zeros = Zeros(lambda v: False)

    @classmethod
    def of(cls, loop: OpenLoop, done: Variable) -> _Mask | None:
        """Analyse ``done``, a state or a row of ``loop``; None if it is not a mask."""
        terms = {v for out in loop.outputs() for v in (out, *_terms(out))}
        conds = {
            v.owner
            for v in terms
            if v.owner is not None and isinstance(v.owner.op, Cond) and v.owner.inputs[0] is done
        }
        if len(conds) != 1:
            return None
        mask = cls(done, conds.pop())
        for s in loop.states:
            if s.inner is done or mask._keeps(s):
                continue
            if not mask._is_count(s):
                return None
            mask.counts.append(s)
        before = {s.inner for s in loop.states}
        return mask if all(y.inner in before or mask._is_zero(y.inner) for y in loop.ys) else None

    def stays(self, flag: State) -> bool:
        """Whether the mask, a state, stays true once it is true."""
        v = self._when_true(flag.next)
        return isinstance(v, Constant) and bool(v.data)

    def _keeps(self, state: State) -> bool:
        v = state.next
        if v is state.inner:
            return True
        if v.owner is self.cond:
            return self._operand(self._when_true(v)) is state.inner
        others = [t for t in _terms(v) if t is not state.inner]
        return len(others) == len(_terms(v)) - 1 and all(map(self._is_zero, others))

    def _is_count(self, state: State) -> bool:
        terms = _terms(state.next)
        return len(terms) == 2 and all(
            t is state.inner
            or (is_elementwise(t.owner, ps.Invert) and t.owner.inputs[0] is self.done)
            for t in terms
        )

    def _is_zero(self, v: Variable) -> bool:
        return v.owner is self.cond and self._zeros(self._when_true(v))

    def _when_true(self, v: Variable) -> Any:
        """The value of ``v``, if an output of the Cond, in the branch that does nothing."""
        return self._branches[0].outputs[self.cond.outputs.index(v)] if v.owner is self.cond else v

    def _operand(self, v: Variable) -> Any:
        inputs = self._branches[0].inputs
        return self.cond.inputs[1 + inputs.index(v)] if v in inputs else None

    def lift(self, loop: OpenLoop) -> None:
        """Replace the steps of ``loop`` by their computation for a false mask."""
        branch = self._branches[1]
        operands = dict(zip(branch.inputs, self.cond.inputs[1:], strict=True))
        inside = dict(zip(self.cond.outputs, replaced(branch.outputs, operands), strict=True))
        # Two rounds: the operands of the branch may depend on the flag as well.
        known = {self.done: pt.constant(False), **{s.inner: loop.i for s in self.counts}}
        loop.set_outputs(replaced(replaced(loop.outputs(), inside), known))


def _terms(v: Variable) -> Sequence[Any]:
    return v.owner.inputs if is_elementwise(v.owner, ps.Add) else [v]


Readers = tuple[list[tuple[OpenLoop, _Mask]], list[Apply]]


def _readers(graph: FunctionGraph, node: Apply, loop: OpenLoop, mask: _Mask) -> Readers | None:
    """The backward loops that read traces of ``node``, and the nodes that read their shapes.

    None where something else reads them.
    """
    flags = [y.trace for y in loop.ys if y.inner is mask.done]
    counts = [s.final for s in mask.counts]
    backs: dict[Apply, tuple[OpenLoop, _Mask]] = {}
    shapes: dict[Apply, None] = {}
    for y in loop.ys:
        for client, position in graph.clients[y.trace]:
            op: Any = getattr(client, "op", None)
            if isinstance(op, Shape | Shape_i):
                shapes[client] = None
            elif (
                isinstance(op, KeepRows)
                and position == 0
                and not op.last
                and y.inner is not mask.done
            ):
                if client.inputs[1] not in counts:
                    return None
            elif isinstance(op, Scan) and 1 <= position <= op.n_seqs:
                if client not in backs and (back := _back(client, node, flags)) is None:
                    return None
                backs.setdefault(client, back)  # type: ignore[arg-type]
            else:
                return None
    return ([*backs.values()], [*shapes]) if backs else None


def _back(client: Apply, node: Apply, flags: Sequence[Variable]) -> tuple[OpenLoop, _Mask] | None:
    op: Any = client.op
    if op.stops or client.inputs[0] is not node.inputs[0]:
        return None
    loop = OpenLoop.of(client)
    rows = [r.inner for r in loop.rows if r.outer in flags]
    mask = _Mask.of(loop, rows[0]) if len(rows) == 1 else None
    return None if mask is None or mask.counts else (loop, mask)


def _carry_out(
    graph: FunctionGraph, loop: OpenLoop, flag: State, mask: _Mask, readers: Readers
) -> None:
    backs, shapes = readers
    bound, starts = loop.n_steps, _starts(flag.init)
    stop = flag.next
    flags = [y for y in loop.ys if y.inner is mask.done]
    loop.states = [s for s in loop.states if s is not flag and s not in mask.counts]
    loop.ys = [y for y in loop.ys if y not in flags]
    loop.stop = stop
    mask.lift(loop)
    if starts is not True:
        loop.n_steps = pt.switch(starts, bound, pt.constant(0, dtype=bound.type.dtype))
    *_, n_done, stopped = loop.bind()
    new = {s.final: s.new for s in loop.states} | {y.trace: y.new for y in loop.ys}
    pairs: dict[Any, Any] = {s.final: n_done for s in mask.counts}
    pairs[flag.final] = stopped if starts is True else pt.or_(pt.invert(starts), stopped)
    for asked in shapes:
        pairs[asked.outputs[0]] = _shape(asked, new, bound)
    for back, inside in backs:
        pairs |= _shortened(back, inside, new, n_done, bound)
    pairs |= new
    replace_outputs(graph, pairs, "unmask")


def _shape(asked: Apply, new: dict[Any, Any], bound: TensorVariable) -> Any:
    """The shape that a trace over all steps would have."""
    x: Any = asked.inputs[0]
    trailing = [new[x].shape[k] for k in range(1, x.type.ndim)] if x in new else []
    return shape_of(asked, bound.astype("int64"), trailing)


def _shortened(
    loop: OpenLoop,
    mask: _Mask,
    new: dict[Variable, Variable],
    n_done: Variable,
    bound: TensorVariable,
) -> dict[Any, Any]:
    """Shorten the backward loop to ``n_done`` steps; map its old outputs to the new ones."""
    mask.lift(loop)
    loop.rows = [r for r in loop.rows if r.inner is not mask.done]
    for r in loop.rows:
        r.outer = new[r.outer] if r.outer in new else _first(r.outer, n_done)
    loop.n_steps = n_done
    pairs: dict[Any, Any] = loop.close()
    for y in loop.ys:
        pairs[y.trace] = KeepRows()(pairs[y.trace], n_done, bound)
    return pairs


def _first(rows: TensorVariable, n: Variable | int) -> Any:
    """Keep the first ``n`` rows, given that there are at least ``n``."""
    op: Any = rows.owner and rows.owner.op
    if isinstance(op, KeepRows) and not op.last:
        return KeepRows()(*rows.owner.inputs[:2], n)
    return rows[:n]
