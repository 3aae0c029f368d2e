"""Inner graphs as Python functions, for ``perform``."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytensor
from pytensor.compile.mode import Mode
from pytensor.compile.ops import deep_copy_op
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from loopax.ir.compat import thaw
from loopax.ir.evaluate import evaluate


def compiled(graph: Any) -> Any:
    """``graph`` as a function of values, run as it is: whatever should be rewritten has been."""
    body = thaw(graph)
    if any(node.op.destroy_map for node in body.apply_nodes):
        # A compiled function's rewrites left it so. PyTensor refuses what may destroy an input.
        return partial(evaluate, body)
    # A view of an intermediate value is copied. PyTensor's VM keeps the memory behind it and writes to it
    # again at the next call, so that a state that is an Assert of a sum changed the rows before it.
    outputs: Any = [
        deep_copy_op(v) if v.owner is not None and v.owner.op.view_map else v for v in body.outputs
    ]
    as_it_is = Mode("vm", RewriteDatabaseQuery(include=[None]))
    return pytensor.function(body.inputs, outputs, mode=as_it_is, on_unused_input="ignore")
