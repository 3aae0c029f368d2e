"""What an index that is read or written in every run says of a length.

    set_subtensor(x[-1], v)  ->  x has a row, or the program raises

A pass may build on it if the error stays. Where it has made the node that raises superfluous,
`IndexFacts.keep_errors` puts a check in its place, around an output.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import DenseTensorType

from loopax.ir.checked import Checked
from loopax.ir.compat import IfElse, LazyIfElse
from loopax.ir.sizes.size import Size, counts_steps
from loopax.ir.sizes.sizes import Sizes

_MESSAGE = "index out of bounds: the axis is too short"


class _Fact(NamedTuple):
    node: Apply  # raises IndexError where it does not hold
    length: Size
    least: int


class IndexFacts:
    """The facts of one graph, and what is known with them."""

    def __init__(self, graph: FunctionGraph) -> None:
        self.graph = graph
        self.sizes = Sizes(graph)
        self._plain = Sizes(graph)
        lazy = any(isinstance(node.op, IfElse | LazyIfElse) for node in graph.apply_nodes)
        checkable = any(isinstance(v.type, DenseTensorType) for v in graph.outputs)
        self._facts = [] if lazy or not checkable else self._found()
        for fact in self._facts:
            self.sizes.learn(fact.length, fact.least)

    def _found(self) -> list[_Fact]:
        asked = Sizes(self.graph)  # of its own: its answers name what a pass may replace
        facts = []
        for node in self.graph.toposort():
            index = _constant_index(node, asked)
            if index is None:
                continue
            length, least = asked.length(node.inputs[0]), index + 1 if index >= 0 else -index
            if any(counts_steps(atom) for atom, _ in length.terms):
                continue  # JAX could not check it: there an index that is out of range gives NaN
            if not asked.at_least(length, least) and [k for _, k in length.terms] == [1]:
                facts.append(_Fact(node, length, least))
        return facts

    def guarded(self, size: Size, v: Any) -> Any:
        """``v``, the number for ``size``, with a check if it may be negative where a fact does not hold."""
        if not self._facts or self._plain.at_least(size):
            return v
        atoms = {atom for atom, _ in size.terms}
        for fact in self._facts:
            if atoms & {atom for atom, _ in fact.length.terms}:
                v = self._checked(v, fact)
        return v

    def keep_errors(self) -> None:
        """Check what no node of the graph raises for any more, where its first tensor comes out."""
        lost = [fact for fact in self._facts if fact.node not in self.graph.apply_nodes]
        if not lost:
            return
        k = next(k for k, v in enumerate(self.graph.outputs) if isinstance(v.type, DenseTensorType))
        old = new = self.graph.outputs[k]
        for length, least in dict.fromkeys((fact.length, fact.least) for fact in lost):
            new = self._checked(new, _Fact(lost[0].node, length, least))
        for client, at in list(self.graph.clients[old]):
            if isinstance(client.op, Output) and client.op.idx == k:
                new = old.type.filter_variable(new)
                self.graph.change_node_input(
                    client, at, new, reason="keep_errors", import_missing=True
                )

    def _checked(self, v: Any, fact: _Fact) -> Any:
        holds = pt.ge(self.sizes.variable(fact.length), fact.least)
        return Checked(IndexError, _MESSAGE)(v, holds)


def _constant_index(node: Apply, sizes: Sizes) -> int | None:
    op: Any = node.op
    if not isinstance(op, Subtensor | IncSubtensor) or not op.idx_list:
        return None
    given = node.inputs[2 if isinstance(op, IncSubtensor) else 1 :]
    first = indices_from_subtensor(given, op.idx_list)[0]
    return None if isinstance(first, slice) else sizes.of(first).constant
