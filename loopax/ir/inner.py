"""Inner graphs as Python functions, for ``perform``."""

from __future__ import annotations

from typing import Any

import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.db import RewriteDatabaseQuery

from loopax.ir.compat import thaw


def compiled(graph: Any) -> Any:
    """``graph`` as a function of values, run as it is: whatever should be rewritten has been."""
    body = thaw(graph)
    as_it_is = Mode("vm", RewriteDatabaseQuery(include=[None]))
    return pytensor.function(body.inputs, body.outputs, mode=as_it_is, on_unused_input="ignore")
