"""Inner graphs as Python functions, for ``perform``."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from loopax.ir.compat import thaw
from loopax.ir.evaluate import evaluate


def compiled(graph: Any) -> Any:
    """``graph`` as a function of values, run as it is: whatever should be rewritten has been."""
    body = thaw(graph)
    if any(node.op.destroy_map for node in body.apply_nodes):
        # A compiled function's rewrites left it so. PyTensor refuses what may destroy an input.
        return partial(evaluate, body)
    as_it_is = Mode("vm", RewriteDatabaseQuery(include=[None]))
    return pytensor.function(body.inputs, body.outputs, mode=as_it_is, on_unused_input="ignore")
