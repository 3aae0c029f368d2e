"""The analysis of a graph's dimensions, attached to the graph and shared by passes.

Answers that depend on a change are dropped when the analysis is next requested, not before: a pass
that requests it once, at its beginning, works with answers about the variables of that time. They
stay right while the pass replaces variables by others of the same value.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.features import AlreadyThere, Feature
from pytensor.graph.fg import FunctionGraph

from loopax.ir.sizes.analysis import Dims, loop_facts


class DimFeature(Feature):
    """Holds `dims_of` and `unconditional_dims_of` of the graph to which it is attached."""

    def __init__(self) -> None:
        self._changed: dict[Variable, None] = {}
        self.unconditional = Dims()
        self.given_loops: Dims | None = None

    def clone(self) -> DimFeature:
        return DimFeature()

    def on_attach(self, fgraph: Any) -> None:
        if hasattr(fgraph, "dim_feature"):
            raise AlreadyThere
        fgraph.dim_feature = self

    def on_detach(self, fgraph: FunctionGraph) -> None:
        del fgraph.dim_feature

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: object) -> None:
        self._touch(node)

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: object) -> None:
        self._touch(node)

    def on_change_input(
        self,
        fgraph: FunctionGraph,
        node: Apply,
        i: int,
        var: Variable,
        new_var: Variable,
        reason: object = None,
    ) -> None:
        self._touch(node)

    def _touch(self, node: Apply) -> None:
        self._changed.update(dict.fromkeys(node.outputs))

    def refresh(self, graph: FunctionGraph) -> None:
        """Drop the answers that depend on changes."""
        changed, self._changed = [*self._changed], {}
        self.unconditional.forget(changed)
        if self.given_loops is None or not changed:
            return
        self.given_loops.forget(changed)
        if self.given_loops.least != Dims(loop_facts(graph, self.unconditional)).least:
            self.given_loops = None


def dims_of(graph: FunctionGraph) -> Dims:
    """The analysis of the dimensions in ``graph``, given that its loops do not raise."""
    feature = _feature(graph)
    if feature.given_loops is None:
        feature.given_loops = Dims(loop_facts(graph, feature.unconditional))
    return feature.given_loops


def unconditional_dims_of(graph: FunctionGraph) -> Dims:
    """The analysis of the dimensions in ``graph`` without assumptions on its nodes."""
    return _feature(graph).unconditional


def _feature(graph: FunctionGraph) -> DimFeature:
    if not hasattr(graph, "dim_feature"):
        graph.attach_feature(DimFeature())
    graph.dim_feature.refresh(graph)
    return graph.dim_feature


def without_dims(graph: FunctionGraph) -> None:
    """Remove the analysis of ``graph``."""
    if hasattr(graph, "dim_feature"):
        graph.remove_feature(graph.dim_feature)
