"""Removal of checks: ``Assert(x, ok)`` -> ``x``, in bodies too.

Condition: the user has asked for it. It is not among the passes that every program goes through.
"""

from __future__ import annotations

from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise

from loopax.lowering.bodies import replace_nodes


def drop_checks(graph: FunctionGraph) -> None:
    """Replace each check of ``graph``, in place, by the checked value."""
    replace_nodes(
        graph, lambda op: isinstance(op, CheckAndRaise), lambda node: node.inputs[0], "drop_checks"
    )
