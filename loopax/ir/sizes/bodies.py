"""What a loop makes, by one summary of its body: how long it is, along the axes of a row.

    final.shape    ->  init.shape
    trace.shape[1:] ->  the shape of a row, by what the step makes it of

The dimension variables of a summary are those of the inputs of the frozen body, which equal bodies share,
and so they share the summary too.

A state is taken to keep its shape, as the IR has it (`Scan.shapes_of`), unless the step says that it may
not: one that gets longer, or is cut, does not. ``w @ s`` is taken to be as long as ``s``: where it is not,
only a loop of one step could end, and no backend with structured loops would take that.
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
from loopax.ir import Scan
from loopax.ir.sizes.analysis import Dims
from loopax.ir.sizes.dim_expr import DimExpr, EqualDims, Length
from loopax.ir.sizes.rules import agreement_rule, length_rule


class BodyDims:
    """The dimensions in the body of a loop."""

    def __init__(self, op: Scan) -> None:
        self.dims = Dims()
        self._graph, self._args, self._outs = op.fgraph, op.args, op.outs
        self._keeps: dict[tuple[int, int], bool | None] = {}

    def keeps(self, k: int, axis: int) -> bool | None:
        """Whether state ``k`` is as long along ``axis`` after the step as before it.

        True where it is proved, False where it may well not be; None where it is after each step as long
        as a row or a constant, and so can differ from its start only.
        """
        key = (k, axis)
        if key not in self._keeps:
            self._keeps[key] = self._verdict(self._args.states[k], self._outs.states[k], axis)
        return self._keeps[key]

    def keeps_its_start(
        self, k: int, axis: int, start: DimExpr, outside: Callable[[Any], DimExpr | None]
    ) -> bool | None:
        """Whether state ``k``, which is ``start`` long along ``axis``, stays so, or a step raises.

        Parameters
        ----------
        outside
            What is known outside of the loop of a length of an input of the body, a state at its start.

        Returns
        -------
        None where that cannot be told.
        """
        if self.keeps(k, axis):
            return True
        equal = EqualDims((a.replaced(outside), b.replaced(outside)) for a, b in self._agreements)
        after = self.dims.length(self._outs.states[k], axis).replaced(outside)
        growth = equal.canonical(after) - equal.canonical(start)
        return None if growth.constant is None else growth.constant == 0

    @cached_property
    def _agreements(self) -> list[tuple[DimExpr, DimExpr]]:
        """What is equal, or a step raises."""
        nodes = self._graph.toposort()
        return [pair for node in nodes for pair in agreement_rule(node.op, self.dims, node)]

    def _verdict(self, state: Any, following: Any, axis: int) -> bool | None:
        own = self.dims.length(state, axis)
        if own.constant is not None:
            return True
        stack, seen, verdict = [following], {following}, None
        while stack:
            v = stack.pop()
            if v is state or self.dims.length(v, axis) == own:
                return True
            op = None if v.owner is None else v.owner.op
            if facts_of(op).structure is Structure.ELEMENTWISE:
                # Of those that it does not broadcast, one tells the length.
                more = [x for x in v.owner.inputs if x.type.shape[axis] != 1]
            elif isinstance(op, IncSubtensor | SpecifyShape | CheckAndRaise):
                more = v.owner.inputs[:1]
            elif self._is_of_an_input(self.dims.length(v, axis)):
                continue
            else:
                verdict = False
                continue
            stack += [x for x in more if x not in seen]
            seen.update(more)
        return verdict

    def _is_of_an_input(self, length: DimExpr) -> bool:
        """Whether ``length`` is that of a row or a constant, and so the same at each step."""
        variable = length.only_variable
        given = (*self._args.rows, *self._args.consts)
        return length == DimExpr() or (isinstance(variable, Length) and variable.of in given)


_SUMMARIES: WeakKeyDictionary[Scan, BodyDims] = WeakKeyDictionary()


def body_dims(op: Scan) -> BodyDims:
    """The summary of the body of ``op``."""
    found = _SUMMARIES.get(op)
    if found is None:
        found = _SUMMARIES[op] = BodyDims(op)
    return found


@length_rule.register(Scan)
def _of_loop(op: Scan, dims: Dims, node: Any, x: Any, axis: int) -> DimExpr | None:
    at = node.outputs.index(x)
    if at < op.n_states:
        return _of_state(op, dims, node, at, axis)
    if axis == 0:
        return dims.value(node.outputs[-2] if op.stops else node.inputs[0])
    y, body = op.outs.ys[at - op.n_states], body_dims(op)
    for k, v in enumerate(op.outs.states):
        if y is v and body.keeps(k, axis - 1) is not False:
            return _of_state(op, dims, node, k, axis - 1)
    length = body.dims.length(y, axis - 1)
    found = DimExpr(offset=length.offset)
    for variable, k in length.terms:
        if not isinstance(variable, Length) or variable.of not in op.fgraph.inputs:
            return None
        v, at = variable
        if v in op.args.states:
            outside = _of_state(op, dims, node, op.args.states.index(v), at)
        else:  # an input of the body and of the loop have one place
            given = node.inputs[op.fgraph.inputs.index(v)]
            outside = dims.length(given, at + (v in op.args.rows))
        if outside is None:
            return None
        found = found + outside * k
    return found


def _of_state(op: Scan, dims: Dims, node: Any, k: int, axis: int) -> DimExpr | None:
    if body_dims(op).keeps(k, axis) is False or not hasattr(op.args.states[k].type, "ndim"):
        return None
    return dims.length(op.split_inputs(node.inputs).states[k], axis)
