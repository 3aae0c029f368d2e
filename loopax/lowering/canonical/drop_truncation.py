"""A gradient truncated to at least as many steps as there are  ->  an untruncated one.

    Scan{truncate_gradient=k} of n steps, n <= k  ->  Scan of n steps

Condition: ``n <= k`` is proven, whatever else of the program runs.

Reason: the last ``k`` of at most ``k`` steps are all steps. `pytensor.grad` writes the derivative of a
truncated loop as a loop of ``minimum(n, k)`` steps that is truncated, too, and the passes that reverse,
fuse or split loops skip loops with a truncated derivative.

In the literature: truncated backpropagation through time.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.fg import FunctionGraph

from loopax.ir import Scan
from loopax.ir.sizes import unconditional_dims_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import replace_outputs


def drop_truncation(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    for node in graph.toposort():
        op: Any = node.op
        if not isinstance(op, Scan) or op.options.truncate_gradient < 0:
            continue
        dims, args = unconditional_dims_of(graph), op.split_inputs(node.inputs)
        if dims.at_least(-dims.value(args.n_steps) + op.options.truncate_gradient):
            plain = op.with_options(truncate_gradient=-1).bind(args)
            replace_outputs(graph, dict(zip(node.outputs, plain, strict=True)), "drop_truncation")
    map_bodies(graph, drop_truncation)
