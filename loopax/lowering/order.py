"""The passes, in order. `lower` runs them."""

from __future__ import annotations

from collections.abc import Callable

from pytensor.graph.fg import FunctionGraph

from loopax.lowering.stabilize import stabilize

PASSES: tuple[Callable[[FunctionGraph], None], ...] = (
    stabilize,  # first: what follows, and every derivative of ours, sees the stable form
)


def lower(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place."""
    for run in PASSES:
        run(graph)
