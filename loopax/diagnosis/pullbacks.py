"""The pullback of one node as a function of values, op by op or compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op

from loopax.diagnosis.segments import Segments
from loopax.importer.import_graph import import_graph
from loopax.ir.derivatives.after_forward import run_after_forward
from loopax.ir.derivatives.inner_gradients import is_null
from loopax.ir.derivatives.traversal import pull_back
from loopax.ir.evaluation.evaluate import evaluate
from loopax.ir.program import Program


def pullback_graph(op: Op, types: Sequence[Any], used: Sequence[bool]) -> tuple[Any, list[int]]:
    """``[*inputs, *cotangents of used outputs] -> [*cotangents]``, and the positions of their inputs.

    Raises `NotImplementedError` if the op has no pullback.
    """
    inputs = [t() for t in types]
    node = op.make_node(*inputs)
    cotangents = [v.type() if u else None for v, u in zip(node.outputs, used, strict=True)]
    pulled = pull_back(inputs, node.outputs, cotangents)
    at = [k for k, g in enumerate(pulled) if g is not None and not is_null(g)]
    arriving = [g for g in cotangents if g is not None]
    graph = FunctionGraph([*inputs, *arriving], [pulled[k] for k in at], clone=False)
    run_after_forward(graph, [node])
    import_graph(graph)
    return graph, at


class Pullbacks:
    """Pullbacks of nodes, cached by op, types, and the outputs that have a cotangent."""

    def __init__(self, build: Callable[[Program], Any]) -> None:
        self.build = build
        self._graphs: dict[Any, Any] = {}
        self._compiled: dict[Any, Any] = {}

    def pull_node(self, node: Apply, values: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Cotangents of the inputs of ``node``, evaluated op by op; None for an input without one."""
        types = [v.type for v in node.inputs]
        graph, at = self._graph(node.op, types, cotangents)
        arriving = [g for g in cotangents if g is not None]
        pulled: list[Any] = [None] * len(types)
        if at:
            for k, g in zip(at, evaluate(graph, *values, *arriving), strict=True):
                pulled[k] = np.asarray(g)
        return pulled

    def pull_segment(
        self, segments: Segments, inputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Cotangents of the inputs of a run of steps, by a compiled function."""
        loop = segments.loop
        key = loop, tuple(g is not None for g in cotangents)
        if key not in self._compiled:
            graph, at = pullback_graph(loop, segments.types, key[1])
            self._compiled[key] = self.build(Program.of_graph(graph, f"pullback of {loop}")), at
        function, at = self._compiled[key]
        pulled: list[Any] = [None] * len(inputs)
        outs = function(*inputs, *(g for g in cotangents if g is not None))
        for k, g in zip(at, outs, strict=True):
            pulled[k] = np.asarray(g)
        return pulled

    def _graph(self, op: Op, types: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        key = op, tuple(types), tuple(g is not None for g in cotangents)
        if key not in self._graphs:
            self._graphs[key] = pullback_graph(op, types, key[2])
        return self._graphs[key]
