"""Lengths of a loop's outputs along the axes of a row, from a summary of its body.

    final.shape    ->  init.shape
    trace.shape[1:] ->  the shape of a row, by what the step makes it of

A summary is in terms of the inputs of the frozen body, so equal bodies share one.

A state is assumed to keep its shape, as in the IR (`Scan.shapes_of`), unless the step may change it,
by appending or cutting. ``w @ s`` is assumed to be as long as ``s``: otherwise only a loop of one
step could end, which no backend with structured loops accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor

from loopax.facts import Structure, facts_of
from loopax.ir.ops.scan import Scan
from loopax.ir.sizes.analysis import Dims
from loopax.ir.sizes.dim_expr import DimExpr, EqualDims, Length
from loopax.ir.sizes.rules import agreement_rule, length_rule


class BodyDims:
    """The analysis of the dimensions in the body of a loop."""

    def __init__(self, op: Scan) -> None:
        self.dims = Dims()
        self._graph, self._args, self._outs = op.fgraph, op.args, op.outs
        self._keeps: dict[tuple[int, int], bool | None] = {}

    def keeps(self, k: int, axis: int) -> bool | None:
        """Whether state ``k`` is as long along ``axis`` after the step as before it.

        True where that is proved, False where it may differ; None where the state is after each step
        as long as a row, a constant or another state was, and so can differ only from its start.
        """
        key = (k, axis)
        if key not in self._keeps:
            self._keeps[key] = self._verdict(k, axis)
        return self._keeps[key]

    def keeps_its_start(
        self, k: int, axis: int, start: DimExpr, outside: Callable[[Any], DimExpr | None]
    ) -> bool | None:
        """Whether state ``k``, of length ``start`` along ``axis``, keeps it, or a step raises.

        Parameters
        ----------
        outside
            The length, outside of the loop, of an input of the body; for a state at its start.

        Returns
        -------
        None where that is not known.
        """
        return self._keeps_its_start(k, axis, start, outside, frozenset())

    def _keeps_its_start(
        self,
        k: int,
        axis: int,
        start: DimExpr,
        outside: Callable[[Any], DimExpr | None],
        passed: frozenset[int],
    ) -> bool | None:
        if self.keeps(k, axis):
            return True
        next_length = self.dims.length(self._outs.states[k], axis)
        # A state that takes over another one keeps its length if that one does.
        for variable, _ in next_length.terms:
            other = self._state_with(DimExpr.variable(variable))
            if other is not None and other[0] not in passed | {k}:
                own = outside(variable)
                if own is None or not self._keeps_its_start(*other, own, outside, passed | {k}):
                    return None
        equal = EqualDims((a.replaced(outside), b.replaced(outside)) for a, b in self._agreements)
        growth = equal.canonical(next_length.replaced(outside)) - equal.canonical(start)
        return None if growth.constant is None else growth.constant == 0

    @cached_property
    def _agreements(self) -> list[tuple[DimExpr, DimExpr]]:
        """Pairs of expressions that are equal unless a step raises."""
        nodes = self._graph.toposort()
        return [pair for node in nodes for pair in agreement_rule(node.op, self.dims, node)]

    def _verdict(self, k: int, axis: int, passed: frozenset[int] = frozenset()) -> bool | None:
        """The answer of `keeps`; states of ``passed`` are being asked."""
        state, next_state = self._args.states[k], self._outs.states[k]
        state_length = self.dims.length(state, axis)
        if state_length.constant is not None:
            return True
        stack, visited, verdict = [next_state], {next_state}, None
        while stack:
            v = stack.pop()
            if v is state or self.dims.length(v, axis) == state_length:
                return True
            op = None if v.owner is None else v.owner.op
            if facts_of(op).structure is Structure.ELEMENTWISE:
                # Any input that is not broadcast has the length.
                sources = [x for x in v.owner.inputs if x.type.shape[axis] != 1]
            elif isinstance(op, IncSubtensor | SpecifyShape | CheckAndRaise):
                sources = v.owner.inputs[:1]
            elif self._is_of_an_input(self.dims.length(v, axis)):
                continue
            else:
                other = self._state_with(self.dims.length(v, axis))
                if other is None or (
                    other[0] not in passed and self._verdict(*other, passed | {k}) is False
                ):
                    verdict = False
                continue
            stack += [x for x in sources if x not in visited]
            visited.update(sources)
        return verdict

    def _state_with(self, length: DimExpr) -> tuple[int, int] | None:
        """The state, and the axis of it, that ``length`` is of."""
        variable = length.only_variable
        if isinstance(variable, Length) and variable.of in self._args.states:
            return self._args.states.index(variable.of), variable.axis
        return None

    def _is_of_an_input(self, length: DimExpr) -> bool:
        """Whether ``length`` is a row's or a constant's, and so the same at each step."""
        variable = length.only_variable
        inputs = (*self._args.rows, *self._args.consts)
        return length == DimExpr() or (isinstance(variable, Length) and variable.of in inputs)


_SUMMARIES: WeakKeyDictionary[Scan, BodyDims] = WeakKeyDictionary()


def body_dims(op: Scan) -> BodyDims:
    summary = _SUMMARIES.get(op)
    if summary is None:
        summary = _SUMMARIES[op] = BodyDims(op)
    return summary


@length_rule.register(Scan)
def _loop_length(op: Scan, dims: Dims, node: Any, x: Any, axis: int) -> DimExpr | None:
    at = node.outputs.index(x)
    if at < op.n_states:
        return _state_length(op, dims, node, at, axis)
    if axis == 0:
        return dims.value(node.outputs[-2] if op.stops else node.inputs[0])
    y, body = op.outs.ys[at - op.n_states], body_dims(op)
    for k, v in enumerate(op.outs.states):
        if y is v and body.keeps(k, axis - 1) is not False:
            return _state_length(op, dims, node, k, axis - 1)
    length = body.dims.length(y, axis - 1)
    result = DimExpr(offset=length.offset)
    for variable, k in length.terms:
        if not isinstance(variable, Length) or variable.of not in op.fgraph.inputs:
            return None
        v, at = variable
        if v in op.args.states:
            outside = _state_length(op, dims, node, op.args.states.index(v), at)
        else:  # inputs of the body and of the loop have the same positions
            argument = node.inputs[op.fgraph.inputs.index(v)]
            outside = dims.length(argument, at + (v in op.args.rows))
        if outside is None:
            return None
        result = result + outside * k
    return result


def _state_length(op: Scan, dims: Dims, node: Any, k: int, axis: int) -> DimExpr | None:
    if body_dims(op).keeps(k, axis) is False or not hasattr(op.args.states[k].type, "ndim"):
        return None
    return dims.length(op.split_inputs(node.inputs).states[k], axis)
