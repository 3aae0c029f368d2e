"""Inner graphs as compiled functions, for ``perform``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import OutputStorageType
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from loopax.base.upstream.pytensor import thaw
from loopax.ir.evaluation.evaluate import perform_nodes
from loopax.ir.ops.inner_graph_op import InnerGraphOp, Step


class CompiledBodies(InnerGraphOp):
    """An `InnerGraphOp` that compiles its bodies for ``perform``, once, at the first call."""

    @cached_property
    def steps(self) -> list[Step]:
        return [compiled(body) for body in self.bodies]

    @property
    def fn(self) -> Any:
        """The inner graph, compiled: 3.0's DebugMode looks into it."""
        return compiled(self.fgraph)

    def perform(
        self, node: Apply, inputs: Sequence[Any], output_storage: OutputStorageType
    ) -> None:
        for cell, value in zip(output_storage, self.run(inputs, *self.steps), strict=True):
            cell[0] = value

    def __getstate__(self) -> dict[str, Any]:
        classes = type(self).__mro__
        computed = {
            k for c in classes for k, v in vars(c).items() if isinstance(v, cached_property)
        }
        return {k: v for k, v in self.__dict__.items() if k not in computed and k != "written"}


def compiled(graph: AbstractFunctionGraph) -> Any:
    """Compile ``graph`` to a function of values, without rewrites: they have been applied before."""
    body = thaw(graph)
    if any(node.op.destroy_map for node in body.apply_nodes):
        # Rewrites of a compiled function introduced it. PyTensor refuses graphs that may destroy an input.
        return partial(perform_nodes, body)
    # Copy a view of an intermediate value. PyTensor's VM keeps its memory and overwrites it at the next
    # call: a state that was an Assert of a sum changed the previous rows.
    outputs: Any = [
        deep_copy_op(v) if v.owner is not None and v.owner.op.view_map else v for v in body.outputs
    ]
    # In FAST_COMPILE mode use Python code: a C compiler takes half a second for each op.
    is_quick = pytensor.config.mode == "FAST_COMPILE"
    linker = get_mode("FAST_COMPILE").linker if is_quick else "vm"
    as_it_is = Mode(linker, RewriteDatabaseQuery(include=[None]))
    return pytensor.function(body.inputs, outputs, mode=as_it_is, on_unused_input="ignore")
