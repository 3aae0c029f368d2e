"""The passes, in order. `lower` runs them."""

from __future__ import annotations

from collections.abc import Callable

from pytensor.graph.fg import FunctionGraph

from loopax.lowering.if_else_to_cond import if_else_to_cond
from loopax.lowering.merge_twins import merge_twins
from loopax.lowering.remove_unused import remove_unused
from loopax.lowering.scan_to_loop import scan_to_loop
from loopax.lowering.stabilize import stabilize

PASSES: tuple[Callable[[FunctionGraph], None], ...] = (
    merge_twins,  # first: the graph as it was built shows twins best
    remove_unused,  # after twins are one: what only one of them needed; before there is less to rewrite
    stabilize,  # PyTensor's rewrites: what follows, and every derivative of ours, sees the stable form
    if_else_to_cond,  # after the rewrites of stabilize, which do not look from a branch outwards
)

NATIVE_PASSES: tuple[Callable[[FunctionGraph], None], ...] = (
    *PASSES,
    scan_to_loop,  # last: a Loop cannot be differentiated or batched, and says less than a Scan
)


def lower(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place, as a backend with structured loops wants it."""
    for run in PASSES:
        run(graph)


def lower_to_loops(graph: FunctionGraph) -> None:
    """Run every pass on ``graph``, in place, as a backend that writes its own loops wants it."""
    for run in NATIVE_PASSES:
        run(graph)
