"""Tests of integers that their intervals decide, and the selections that depend on such tests.

    i < 0 with i the index of a step, of any loop   ->  False
    switch(i < 0, i + n, i), clip(i, 0, n - 1)      ->  i, where 0 <= i < n
    (i % 5) < 5                                     ->  True
    flag != 0, flag == 1                            ->  flag
    switch(s < 0, s + n, s)  of a state s from 0 on  ->  s, where each step leaves 0 <= s < n

Condition: `loopax.ir.sizes.interval_of` knows the intervals, and none may wrap around.

Reason: NumPy's rule for negative indices and JAX's rule for indices out of range are five operations at
each read. Where the index counts the steps all are idle; LLVM removes them only where it sees the loop
bounds.

In the literature: value range propagation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.tensor.type import DenseTensorType, discrete_dtypes, integer_dtypes

from loopax.facts.elementwise import is_elementwise, scalar_op_of
from loopax.ir import Scan
from loopax.ir.sizes import Interval, hull, interval_of, interval_of_values
from loopax.lowering.bodies import has_bodies, map_bodies

Intervals = Mapping[Variable, Interval]


def fold_tests(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    _fold(graph, Known({}))


def _fold(graph: FunctionGraph, known: Known) -> bool:
    """Fold the tests of a graph, adding what is known there to ``known``; return whether it changed."""
    has_changed = False
    for node in graph.toposort():
        if isinstance(node.op, Scan):
            has_changed |= _fold_body(graph, node, known)
        else:
            known.add(node)
            out = node.outputs[0]
            simpler = _simpler(node, known)
            if simpler is not None and simpler.type == out.type:
                known.copy(out, simpler)
                graph.replace(out, simpler, reason="fold_tests")
                has_changed = True
    # The bodies of loops have been handled, with the intervals of their inputs.
    loops = {node.op.fgraph for node in graph.apply_nodes if isinstance(node.op, Scan)}
    map_bodies(graph, fold_tests, where=lambda body: body not in loops and _may_fold(body))
    return has_changed


def _fold_body(graph: FunctionGraph, node: Apply, known: Known) -> bool:
    op: Any = node.op
    has_places = any(_dtype(y) in integer_dtypes for y in op.outs.ys)
    if not has_places and not _may_fold(op.fgraph):
        return False
    body = op.unfrozen()
    args, operands = op.split_body_inputs(body.inputs), op.split_inputs(node.inputs)
    pairs = [*zip(args.rows, operands.sequences, strict=True)]
    pairs += zip(args.consts, operands.consts, strict=True)
    inside = {v: interval for v, x in pairs if (interval := known(x)) is not None}
    if (steps := known(operands.n_steps)) is not None:
        inside[args.i] = (0, max(steps[1] - 1, 0))
    states = _intervals_of_states(op, body, inside, list(map(known, operands.states)))
    known_inside = Known({**inside, **states})
    has_changed = _fold(body, known_inside)
    results: Any = op.split_outputs(node.outputs)
    if has_changed:
        bound = op.with_graph(body).bind(operands)
        outs = [v.type.filter_variable(w) for v, w in zip(node.outputs, bound, strict=True)]
        graph.replace_all(zip(node.outputs, outs, strict=True), reason="fold_tests")
        results = op.split_outputs(outs)
    for final, state in zip(results.finals, args.states, strict=True):
        known.note(final, states.get(state))
    if not op.stops:  # a trace of such a loop may have more rows than the loop took steps
        ys = op.split_body_outputs(body.outputs).ys
        for trace, y in zip(results.traces, ys, strict=True):
            known.note(trace, known_inside(y))
    return has_changed


def _intervals_of_states(
    op: Any, body: FunctionGraph, inside: Intervals, starts: Sequence[Interval | None]
) -> Intervals:
    """The intervals of the states of a loop, given the intervals ``inside`` of its other inputs.

    By induction: each state is assumed to stay in its initial interval, then in the one that a step widens
    it to. A state that leaves that one too is dropped, and the others are tried without it.
    """
    states = op.split_body_inputs(body.inputs).states
    pairs = zip(states, starts, strict=True)
    assumed = {v: start for v, start in pairs if start and _dtype(v) in integer_dtypes}
    nexts = dict(zip(states, op.split_body_outputs(body.outputs).states, strict=True))
    is_widened = False
    while assumed:
        known = Known({**inside, **assumed})
        for node in body.toposort():
            known.add(node)
        wider = {v: hull(interval, known(nexts[v])) for v, interval in assumed.items()}
        if wider == assumed:
            break
        # A state that is unknown after the step is dropped at once, as is one that grows a second time.
        assumed = {
            v: interval
            for v, interval in wider.items()
            if interval is not None and (not is_widened or interval == assumed[v])
        }
        is_widened = True
    return assumed


def _may_fold(body: AbstractFunctionGraph) -> bool:
    return has_bodies(body) or any(
        type(scalar_op_of(node.op)) in _RULES for node in body.apply_nodes
    )


class Known:
    """The intervals of the integers of a graph, propagated from its inputs."""

    def __init__(self, inputs: Intervals) -> None:
        self._intervals = dict(inputs)

    def __call__(self, v: Variable) -> Interval | None:
        """The least and the greatest element of ``v``; None where they are not known."""
        if not isinstance(v, Constant):
            interval = self._intervals.get(v)
            return (0, 1) if interval is None and _dtype(v) == "bool" else interval
        return interval_of_values(v.data)

    def add(self, node: Apply) -> None:
        """Record the intervals of the outputs of ``node``, whose inputs are known."""
        for v in node.outputs:
            if _dtype(v) in discrete_dtypes:
                interval = interval_of(v, self, self._length)
                self.note(v, interval)

    def copy(self, old: Variable, new: Variable) -> None:
        """Record that ``new`` has the values of ``old``."""
        if new not in self._intervals:
            self.note(new, self._intervals.get(old))

    def note(self, v: Variable, interval: Interval | None) -> None:
        """Record that ``v`` lies in ``interval``, if that is known."""
        if interval is not None:
            self._intervals[v] = interval

    def _length(self, x: Variable, axis: int) -> Interval | None:
        n = x.type.shape[axis] if isinstance(x.type, DenseTensorType) else None
        return None if n is None else (n, n)


def _dtype(v: Variable) -> str:
    return getattr(v.type, "dtype", "")


def _simpler(node: Apply, known: Known) -> Any:
    """The output of an elementwise ``node`` in fewer operations; None if there is no such form."""
    if not is_elementwise(node) or len(node.outputs) > 1:
        return None
    out: Any = node.outputs[0]
    interval = known(out)
    is_number = interval is not None and interval[0] == interval[1]
    if is_number and None not in out.type.shape:
        number = np.asarray(interval[0], dtype=out.type.dtype)  # type: ignore[index]
        return pt.constant(number) if not out.type.ndim else pt.alloc(number, *out.type.shape)
    rule = _RULES.get(type(scalar_op_of(node.op)))
    return None if rule is None else rule(known, *node.inputs)


def _switch(known: Known, condition: Variable, if_true: Variable, if_false: Variable) -> Any:
    interval = known(condition)
    if interval is None or interval[0] <= 0 <= interval[1] != interval[0]:
        return None
    return if_false if interval == (0, 0) else if_true


def _clip(known: Known, x: Variable, low: Variable, high: Variable) -> Any:
    return x if _is_at_most(known, low, x) and _is_at_most(known, x, high) else None


def _minimum(known: Known, *operands: Variable) -> Any:
    least = [v for v in operands if all(_is_at_most(known, v, w) for w in operands if w is not v)]
    return least[0] if least else None


def _maximum(known: Known, *operands: Variable) -> Any:
    most = [v for v in operands if all(_is_at_most(known, w, v) for w in operands if w is not v)]
    return most[0] if most else None


def _is_at_most(known: Known, a: Variable, b: Variable) -> bool:
    """Whether every element of ``a`` is at most any element of ``b``."""
    first, second = known(a), known(b)
    return first is not None and second is not None and first[1] <= second[0]


def _cast(known: Known, x: Variable) -> Any:
    """The operand of the inner of two casts between integer types, if its interval fits that type."""
    if not is_elementwise(x.owner, ps.Cast) or known(x) is None:
        return None
    (source,) = x.owner.inputs
    return source if known(source) == known(x) else None


def _flag(known: Known, a: Variable, b: Variable, number: int) -> Any:
    """The flag that a comparison with ``number`` gives back unchanged."""
    for x, other in ((a, b), (b, a)):
        if _dtype(x) == "bool" and known(other) == (number, number):
            return x
    return None


# Tests have no rule here: a known test folds to a constant by its interval.
_RULES: dict[type, Callable[..., Any]] = {
    ps.Switch: _switch,
    ps.Clip: _clip,
    ps.ScalarMinimum: _minimum,
    ps.ScalarMaximum: _maximum,
    ps.Cast: _cast,
    ps.EQ: partial(_flag, number=1),
    ps.NEQ: partial(_flag, number=0),
    **dict.fromkeys((ps.LT, ps.LE, ps.GT, ps.GE), lambda known, *operands: None),
}
