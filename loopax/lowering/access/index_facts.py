"""Facts about lengths, implied by an index that every run reads or writes.

    set_subtensor(x[-1], v)  ->  x has a row, or the program raises

A pass may build on it if the error stays. Where it has made the node that raises superfluous,
`IndexFacts.keep_errors` puts a check in its place, around an output.
"""

from __future__ import annotations

from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.base.upstream.pytensor import IfElse, LazyIfElse
from loopax.facts.elementwise import is_elementwise
from loopax.ir.ops.checked import Checked
from loopax.ir.sizes import (
    Clipped,
    DimExpr,
    Dims,
    Fact,
    Length,
    access_of,
    counts_steps,
    dims_of,
    loop_facts,
    unconditional_dims_of,
)

_MESSAGE = "index out of bounds: the axis is too short"


class IndexFacts:
    """The index facts of one graph, and the dimensions that are known with them."""

    def __init__(self, graph: FunctionGraph) -> None:
        self.graph = graph
        self._without = self.dims = dims_of(graph)
        lazy = any(isinstance(node.op, IfElse | LazyIfElse) for node in graph.apply_nodes)
        checkable = any(isinstance(v.type, DenseTensorType) for v in graph.outputs)
        self._facts = [] if lazy or not checkable else self._of_indices()
        self._implied = _implied(self._facts, self.dims)
        if self._implied:
            self.dims = _dims_with(graph, self._implied)

    def _of_indices(self) -> list[Fact]:
        dims, facts = self._without, []
        for node in self.graph.toposort():
            index = _constant_index(node, dims)
            if index is None:
                continue
            length, least = dims.length(node.inputs[0]), index + 1 if index >= 0 else -index
            if _can_be_checked(length) and not dims.at_least(length, least):
                facts.append(Fact(node, length, least))
        return facts

    def guarded(self, expr: DimExpr, v: Variable) -> Any:
        """Add a check to ``v``, the value of ``expr``, where only a fact proves that it is not negative."""
        if not self._facts or self._without.at_least(expr):
            return v
        variables = {variable for variable, _ in expr.terms}
        for fact in self._implied:
            if variables & {variable for variable, _ in fact.expr.terms}:
                v = self._checked(v, fact)
        return v

    def keep_errors(self) -> None:
        """For each fact that no node enforces any more, add a check around the first tensor output."""
        lost = [fact for fact in self._facts if fact.node not in self.graph.apply_nodes]
        if not lost:
            return
        k = next(k for k, v in enumerate(self.graph.outputs) if isinstance(v.type, DenseTensorType))
        old = new = self.graph.outputs[k]
        largest: dict[DimExpr, int] = {}
        for fact in lost:
            largest[fact.expr] = max(fact.least, largest.get(fact.expr, 0))
        for length, least in largest.items():
            new = self._checked(new, Fact(lost[0].node, length, least))
        for client, at in list(self.graph.clients[old]):
            if isinstance(client.op, Output) and client.op.idx == k:
                new = old.type.filter_variable(new)
                self.graph.change_node_input(
                    client, at, new, reason="keep_errors", import_missing=True
                )

    def _checked(self, v: Variable, fact: Fact) -> Any:
        holds = pt.ge(self.dims.variable(fact.expr), fact.least)
        return Checked(IndexError, _MESSAGE)(v, holds)


def _can_be_checked(length: DimExpr) -> bool:
    """Whether ``length`` is one variable, but not the trace length of a loop that stops."""
    return [(k, counts_steps(variable)) for variable, k in length.terms] == [(1, False)]


def _all_as_long(dims: Dims, length: DimExpr) -> list[DimExpr]:
    """Lengths that are at least as large as ``length``, for example of the array behind a slice."""
    if len(length.terms) != 1:
        return [length]
    [(variable, factor)] = length.terms
    sides: list[DimExpr] = []
    if factor == 1 and isinstance(variable, Clipped) and not variable.largest:
        sides = [variable.a, variable.b]
    elif factor == 1 and isinstance(variable, Length) and not variable.axis:
        node = variable.of.owner
        if node is not None and isinstance(node.op, Subtensor):
            access = access_of(node)
            sides = [] if access.is_row else [dims.length(access.array)]
    return [length, *(x for side in sides for x in _all_as_long(dims, side + length.offset))]


def checked_dims(graph: FunctionGraph) -> Dims:
    """Dimensions that take for granted what the checks of `IndexFacts` around the outputs enforce.

    A pass that builds on it keeps every error: the check stays.
    """
    facts = [fact for v in graph.outputs for fact in _checked_facts(v, dims_of(graph))]
    if not facts:
        return dims_of(graph)
    return _dims_with(graph, _implied(facts, dims_of(graph)))


def _implied(facts: list[Fact], dims: Dims) -> list[Fact]:
    """Extend ``facts`` to longer arrays: if a slice has two rows, so has the array behind it."""
    return [
        Fact(fact.node, length, fact.least)
        for fact in facts
        for length in _all_as_long(dims, fact.expr)
        if _can_be_checked(length)
    ]


def _dims_with(graph: FunctionGraph, facts: list[Fact]) -> Dims:
    return Dims([*loop_facts(graph, unconditional_dims_of(graph)), *facts])


def _checked_facts(v: Variable, dims: Dims) -> list[Fact]:
    facts: list[Fact] = []
    while v.owner is not None and isinstance(v.owner.op, Checked):
        node: Apply = v.owner
        for condition in node.inputs[1:]:
            holds = condition.owner
            if holds is not None and isinstance(holds.op, ScalarFromTensor):
                holds = holds.inputs[0].owner
            if holds is None or not is_elementwise(holds, ps.GE):
                continue
            length, least = map(dims.value, holds.inputs)
            if least.constant is not None:
                facts.append(Fact(node, length, least.constant))
        v = node.inputs[0]
    return facts


def _constant_index(node: Apply, dims: Dims) -> int | None:
    if not isinstance(node.op, Subtensor | IncSubtensor):
        return None
    access = access_of(node)
    return dims.value(access.rows).constant if access.is_row else None
