"""Lengths of a loop's outputs along the axes of a row, from a summary of the loop body.

    final.shape    ->  init.shape
    trace.shape[1:] ->  the shape of a row, in terms of the step's inputs

A summary is in terms of the inputs of the frozen body, so equal bodies share one.

A state keeps its shape unless the step may change it, by appending or cutting. ``w @ s`` is assumed to
be as long as ``s``: otherwise only a loop of one step could finish, which JAX does not accept and
native code refuses when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.variable import TensorVariable

from loopax.facts import Structure, facts_of
from loopax.ir.ops.scan_grammar import ScanGrammar
from loopax.ir.sizes.analysis import Dims
from loopax.ir.sizes.dim_expr import DimExpr, DimVariable, EqualDims, Length
from loopax.ir.sizes.rules import agreement_rule, length_rule


class BodyDims:
    """The analysis of the dimensions in the body of a loop."""

    def __init__(self, op: ScanGrammar) -> None:
        self.dims = Dims()
        self._graph, self._args, self._outs = op.fgraph, op.args, op.outs
        self._keeps: dict[tuple[int, int], bool | None] = {}

    def keeps(self, k: int, axis: int) -> bool | None:
        """Whether state ``k`` has the same length along ``axis`` after the step as before it.

        True if that is proved, False if it may differ; None if the length after each step equals the length
        of a row or a constant, so that it can differ only from the initial one.
        """
        key = (k, axis)
        if key not in self._keeps:
            self._keeps[key] = self._verdict(self._args.states[k], self._outs.states[k], axis)
        return self._keeps[key]

    def keeps_its_start(
        self,
        k: int,
        axis: int,
        start: DimExpr,
        outside: Callable[[Any], DimExpr | None],
        passed: frozenset[int] = frozenset(),
    ) -> bool | None:
        """Whether state ``k``, initially of length ``start`` along ``axis``, keeps it, or a step raises.

        Parameters
        ----------
        outside
            Maps a length of an input of the body to one outside of the loop; for a state, to its initial
            length.
        passed
            States that take over this one, directly or through others.

        Returns
        -------
        None where that is not known.
        """
        if self.keeps(k, axis):
            return True
        next_length = self.dims.length(self._outs.states[k], axis)
        # A state that takes the value of another state keeps its length if the other one does.
        for variable, _ in next_length.terms:
            other = self.state_with(variable)
            if other is not None and other[0] not in passed | {k}:
                own = outside(variable)
                if own is None or not self.keeps_its_start(*other, own, outside, passed | {k}):
                    return None
        equal = EqualDims((a.replaced(outside), b.replaced(outside)) for a, b in self._agreements)
        growth = equal.canonical(next_length.replaced(outside)) - equal.canonical(start)
        return None if growth.constant is None else growth.constant == 0

    @cached_property
    def _agreements(self) -> list[tuple[DimExpr, DimExpr]]:
        """Pairs of expressions that are equal unless a step raises."""
        nodes = self._graph.toposort()
        return [pair for node in nodes for pair in agreement_rule(node.op, self.dims, node)]

    def _verdict(self, state: TensorVariable, next_state: TensorVariable, axis: int) -> bool | None:
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
                verdict = False
                continue
            stack += [x for x in sources if x not in visited]
            visited.update(sources)
        return verdict

    def state_with(self, variable: DimVariable) -> tuple[int, int] | None:
        """The state and the axis whose length ``variable`` is; None for any other variable."""
        if isinstance(variable, Length) and variable.of in self._args.states:
            return self._args.states.index(variable.of), variable.axis
        return None

    def _is_of_an_input(self, length: DimExpr) -> bool:
        """Whether ``length`` is a row's or a constant's, and so is loop-invariant."""
        variable = length.only_variable
        inputs = (*self._args.rows, *self._args.consts)
        return length.constant is not None or (
            isinstance(variable, Length) and variable.of in inputs
        )


_SUMMARIES: WeakKeyDictionary[ScanGrammar, BodyDims] = WeakKeyDictionary()


def body_dims(op: ScanGrammar) -> BodyDims:
    summary = _SUMMARIES.get(op)
    if summary is None:
        summary = _SUMMARIES[op] = BodyDims(op)
    return summary


@length_rule.register(ScanGrammar)
def _loop_length(
    op: ScanGrammar, dims: Dims, node: Apply, x: Variable, axis: int
) -> DimExpr | None:
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
    result, outside = DimExpr(offset=length.offset), _outside(op, dims, node)
    for variable, k in length.terms:
        state = body.state_with(variable)
        outer = outside(variable) if state is None else _state_length(op, dims, node, *state)
        if outer is None:
            return None
        result = result + outer * k
    return result


def may_change(node: Apply, k: int, axis: int) -> bool:
    """Whether state ``k`` of the loop ``node`` may end with another length along ``axis``."""
    if body_dims(node.op).keeps(k, axis) is not False:
        return False
    dims = Dims()
    return dims.length(node.outputs[k], axis) != dims.length(
        node.op.split_inputs(node.inputs).states[k], axis
    )


def _state_length(op: ScanGrammar, dims: Dims, node: Apply, k: int, axis: int) -> DimExpr | None:
    if not hasattr(op.args.states[k].type, "ndim"):
        return None
    body, start = body_dims(op), dims.length(op.split_inputs(node.inputs).states[k], axis)
    if body.keeps(k, axis) is not False:
        return start
    # The states of a window take each other's values: they keep their lengths if all start with one.
    return start if body.keeps_its_start(k, axis, start, _outside(op, dims, node)) else None


def _outside(op: ScanGrammar, dims: Dims, node: Apply) -> Callable[[Any], DimExpr | None]:
    """Map lengths of the body's inputs to lengths outside of the loop; for a state, its initial one."""

    def length(variable: DimVariable) -> DimExpr | None:
        if not isinstance(variable, Length) or variable.of not in op.fgraph.inputs:
            return None
        # Inputs of the body and of the loop have the same positions.
        argument = node.inputs[op.fgraph.inputs.index(variable.of)]
        return dims.length(argument, variable.axis + (variable.of in op.args.rows))

    return length
