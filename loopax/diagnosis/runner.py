"""``Runner``: runs graphs node by node with all values in memory, and long loops as compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.tensor.blockwise import Blockwise

from loopax.base.upstream.pytensor import core_node
from loopax.diagnosis.frames import Failed, Frame, TooLong
from loopax.diagnosis.loops import LoopRun
from loopax.diagnosis.numbers import without_subnormals
from loopax.diagnosis.segments import Segments
from loopax.ir import Call, Cond, Scan
from loopax.ir.evaluation.evaluate import apply, own
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.program import Program

# This many nodes of a loop run one by one, some 20 us each. The steps of a longer loop are compiled,
# and a step in question alone runs node by node.
_NODES = 20_000


class Runner:
    """Run graphs, with the values of all variables in memory.

    Parameters
    ----------
    build
        Compiles a `Program` to the function that a user would run.
    flushes
        Whether that function takes subnormal numbers for 0, as XLA does on a CPU.
    raises
        Whether an error of an op ends the run even where compiled code gives nan in its place.
    """

    budget = _NODES

    def __init__(
        self, build: Callable[[Program], Any], flushes: bool, *, raises: bool = False
    ) -> None:
        self.build, self.flushes, self.raises = build, flushes, raises
        self.remaining: int | None = None  # nodes of a loop that may still run one by one
        self._segments: dict[Any, Segments] = {}
        self._nodes: dict[Any, Any] = {}

    def run(self, frame: Frame) -> list[Any]:
        """Compute all values of ``frame``, and return its outputs.

        Raises `Failed` if a node raised, in ``frame`` or inside of it.
        """
        for node in frame.order:
            if self.remaining is not None:
                self.remaining -= 1
                if self.remaining < 0:
                    raise TooLong
            inputs = [frame.value(v) for v in node.inputs]
            outputs = self._outputs(frame, node, inputs)
            if self.flushes:
                outputs = [without_subnormals(x) for x in outputs]
            frame.values.update(zip(node.outputs, outputs, strict=True))
        return [frame.value(v) for v in frame.graph.outputs]

    def _outputs(self, frame: Frame, node: Apply, inputs: Sequence[Any]) -> list[Any]:
        match node.op:
            case Scan():
                loop = frame.inside[node] = LoopRun(self, frame, node, inputs)
                return loop.run()
            case Cond(branches=branches):
                return self._within(frame, node, branches[0 if inputs[0] else 1], inputs[1:])
            case Call(written=written, fgraph=graph):
                return self._within(frame, node, written or graph, inputs)
        try:
            return apply(node, inputs)
        except Exception as error:  # a third-party op may raise anything
            outputs = None if self.raises else self._compiled_outputs(node, inputs)
            if outputs is None:
                raise Failed(frame, node, error) from error
            frame.errors[node] = error
            return outputs

    def _within(
        self, frame: Frame, node: Apply, graph: AbstractFunctionGraph, inputs: Sequence[Any]
    ) -> list[Any]:
        inner = frame.inside[node] = Frame(graph, inputs, frame, node)
        return [own(x) for x in self.run(inner)]

    def row(self, frame: Frame, node: Apply, at: tuple[int, ...]) -> Frame | None:
        """The frame of one row of a batch of graphs, ``node``; None for any other node."""
        op: Any = node.op
        if not isinstance(op, Blockwise) or not isinstance(op.core_op, InnerGraphOp):
            return None
        if (node, at) not in frame.inside:
            core = core_node(op, node.inputs)
            n = op.batch_ndim(node)
            rows = []
            for v in node.inputs:
                x = np.asarray(frame.value(v))
                rows.append(np.array(x[tuple(k % m for k, m in zip(at, x.shape[:n], strict=True))]))
            graph = FunctionGraph(core.inputs, core.outputs, clone=False)
            label = f"row {', '.join(map(str, at))}"
            row = Frame(graph, rows, frame, node, label, row=at)
            self.run(row)
            frame.inside[node, at] = row
        return frame.inside[node, at]

    def segments(self, scan: Scan) -> Segments:
        """Compiled runs of steps of ``scan``, made once."""
        if scan not in self._segments:
            self._segments[scan] = Segments(scan, self.build)
        return self._segments[scan]

    def _compiled_outputs(self, node: Apply, inputs: Sequence[Any]) -> list[Any] | None:
        """Outputs of ``node`` in the user's own form: nan for a matrix that PyTensor refuses."""
        variables = [v.type() for v in node.inputs]
        graph = FunctionGraph(variables, node.op.make_node(*variables).outputs, clone=False)
        try:
            outputs = self.build(Program.of_graph(graph))(*inputs)
        except Exception:  # the compiled form raises as well
            return None
        return [np.asarray(x) for x in outputs]
