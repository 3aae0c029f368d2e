"""Run the passes one by one, and keep the graph before and after each that changes something.

`lower` leaves only the last graph. Here a copy of every intermediate graph is kept, but not a frozen one:
freezing merges equal nodes, which may be all that a pass did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph

from loopax.base.upstream.pytensor import thaw
from loopax.ir import Scan
from loopax.lowering import order
from loopax.lowering.bodies import with_body


class Counts(NamedTuple):
    """The numbers of nodes of a graph. Each node is counted once, in one of the three fields."""

    loops: int  # at any depth
    outside: int  # the others, which run once, including nodes in the branches of a Cond
    inside: int  # nodes in the bodies of loops


class Stage(NamedTuple):
    """The effect of one pass. The graphs are copies, with the names of the inputs."""

    name: str
    before: FunctionGraph
    after: FunctionGraph
    counts: Counts  # the counts of the graph after the pass


def stages(
    graph: FunctionGraph, passes: Sequence[Callable[[FunctionGraph], None]] | None = None
) -> Iterator[Stage]:
    """Run the passes on ``graph``, in place, and yield a stage for each that changes something.

    ``passes`` defaults to the passes of `lower`.
    """
    before, mark = thaw(graph), _mark(graph)
    for run in order.PASSES if passes is None else passes:
        run(graph)
        if mark != (mark := _mark(graph)):
            after = thaw(graph)
            yield Stage(run.__name__, before, after, counts(after))
            before = after


def _mark(graph: FunctionGraph) -> Any:
    """A key that is equal for equal graphs, ignoring names."""
    return graph.freeze(), len(graph.apply_nodes)


def counts(graph: AbstractFunctionGraph) -> Counts:
    """Count the loops of a graph, and the other nodes outside and inside of them."""
    loops = outside = inside = 0
    for node in graph.apply_nodes:
        op = with_body(node.op)
        within = Counts(0, 0, 0) if op is None else counts(op.fgraph)
        loops += within.loops
        inside += within.inside
        if isinstance(op, Scan):
            loops += 1
            inside += within.outside
        else:
            outside += 1 + within.outside
    return Counts(loops, outside, inside)
