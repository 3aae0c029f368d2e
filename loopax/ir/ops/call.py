"""``Call``: a subgraph as one op, with its own pullback.

An OpFromGraph with an overridden gradient becomes a Call, as does the core of a Blockwise over a graph. The
import inlines other subgraphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pytensor.compile.builders import infer_shape
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from loopax.base.upstream.pytensor import freeze
from loopax.ir.derivatives.inner_gradients import (
    at_inputs,
    connections,
    is_connected,
    is_float,
    pytensor_cotangents,
    zeros_for,
)
from loopax.ir.derivatives.pullback import PullbackRule
from loopax.ir.derivatives.traversal import pull_back
from loopax.ir.evaluation.evaluate import perform_nodes
from loopax.ir.evaluation.inner import CompiledBodies
from loopax.ir.ops.inner_graph_op import Step
from loopax.ir.replace import outputs_at, replaced


class Call(CompiledBodies):
    """The graph ``body`` as one op.

    Parameters
    ----------
    body
        ``[*inputs] -> [*outputs]``.
    rule
        The pullback; None for the derivative of ``body``.
    name
        For printing.
    """

    def __init__(
        self, body: FrozenFunctionGraph, rule: PullbackRule | None = None, name: str = "call"
    ) -> None:
        self.fgraph = body
        self.rule = rule
        self.name = name

    @classmethod
    def from_graph(
        cls, graph: FunctionGraph, rule: PullbackRule | None = None, name: str = "call"
    ) -> Call:
        """The call of ``graph``, with its names and source lines."""
        call = cls(freeze(graph), rule, name)
        call.written = graph
        return call

    def with_body(self, body: FrozenFunctionGraph) -> Call:
        return Call(body, self.rule, self.name)

    def _key(self) -> tuple[Any, ...]:
        return self.fgraph, self.rule

    def __str__(self) -> str:
        return f"Call{{{self.name}}}"

    def make_node(self, *inputs: Variable) -> Apply:
        inner = self.fgraph.inputs
        operands = [v.type.filter_variable(x) for v, x in zip(inner, inputs, strict=True)]
        return Apply(self, operands, [v.type() for v in self.fgraph.outputs])

    @property
    def steps(self) -> list[Step]:
        """The body, run node by node: compiling its few nodes takes longer."""
        return [partial(perform_nodes, self.fgraph)]

    def shapes_of(self, node: Apply, shapes: Sequence[Sequence[Variable] | None]) -> list[Any]:
        body = self.unfrozen()
        body_shapes = infer_shape(body.outputs, body.inputs, shapes)
        replace = dict(zip(body.inputs, node.inputs, strict=True))
        return [None if s is None else tuple(replaced(s, replace)) for s in body_shapes]

    # -- derivatives -----------------------------------------------------------------------------

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        if self.rule is None:
            return connections(self.fgraph.inputs, self.fgraph.outputs)
        return [[is_float(x) and is_float(y) for y in node.outputs] for x in node.inputs]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Any]:
        """The cotangents, by the rule, which reads inputs and outputs, or else by the body's pullback."""
        if self.rule is None:
            in_cotangents = at_inputs(
                pull_back, partial(outputs_at, self.fgraph), inputs, cotangents
            )
            return pytensor_cotangents(self, inputs, outputs, cotangents, in_cotangents)
        seeds = [
            g if is_connected(g) else zeros_for(y)
            for y, g in zip(outputs, cotangents, strict=True)
            if is_float(y)
        ]
        remaining = iter(outputs_at(self.rule.graph, [*inputs, *outputs, *seeds]))
        in_cotangents = [next(remaining) if is_float(x) else None for x in inputs]
        for k, undefined in self.rule.unknown.items():
            in_cotangents[k] = undefined
        return pytensor_cotangents(self, inputs, outputs, cotangents, in_cotangents)
