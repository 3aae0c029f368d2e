"""The analysis of a graph's dimensions for as long as there is the graph: passes share it.

What a change touches is dropped, and what hangs on it, when the analysis is next asked for, not before: a
pass that asks once, at its beginning, works with what held then, of the variables that were there then.
That stays right while the pass replaces variables by others of the same value.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.features import AlreadyThere, Feature
from pytensor.graph.fg import FunctionGraph

from loopax.ir.sizes.analysis import Dims, loop_facts


class DimFeature(Feature):
    """Keeps `dims_of` and `unconditional_dims_of` of the graph that it is attached to."""

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

    def on_detach(self, fgraph: Any) -> None:
        del fgraph.dim_feature

    def on_import(self, fgraph: Any, node: Apply, reason: Any) -> None:
        self._touch(node)

    def on_prune(self, fgraph: Any, node: Apply, reason: Any) -> None:
        self._touch(node)

    def on_change_input(
        self, fgraph: Any, node: Apply, i: int, var: Any, new_var: Any, reason: Any = None
    ) -> None:
        self._touch(node)

    def _touch(self, node: Apply) -> None:
        self._changed.update(dict.fromkeys(node.outputs))

    def refresh(self, graph: FunctionGraph) -> None:
        """Drop what hangs on what has changed."""
        changed, self._changed = [*self._changed], {}
        self.unconditional.forget(changed)
        if self.given_loops is None or not changed:
            return
        self.given_loops.forget(changed)
        if self.given_loops.least != Dims(loop_facts(graph, self.unconditional)).least:
            self.given_loops = None


def dims_of(graph: FunctionGraph) -> Dims:
    """What is known of the dimensions in ``graph``, given that its loops do not raise."""
    feature = _feature(graph)
    if feature.given_loops is None:
        feature.given_loops = Dims(loop_facts(graph, feature.unconditional))
    return feature.given_loops


def unconditional_dims_of(graph: FunctionGraph) -> Dims:
    """What is known of them whichever of the nodes of ``graph`` are there."""
    return _feature(graph).unconditional


def _feature(graph: Any) -> DimFeature:
    if not hasattr(graph, "dim_feature"):
        graph.attach_feature(DimFeature())
    graph.dim_feature.refresh(graph)
    return graph.dim_feature


def without_dims(graph: Any) -> None:
    """Drop what is kept of ``graph``."""
    if hasattr(graph, "dim_feature"):
        graph.remove_feature(graph.dim_feature)
