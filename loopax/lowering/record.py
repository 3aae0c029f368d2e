"""The passes run one by one, with the graph before and after each that changes something.

`lower` leaves only the last graph. Here a copy of every graph on the way is kept. Not a frozen one: to
freeze a graph makes equal nodes one, and what a pass did may be just that.
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
    """The nodes of a graph. Each is counted once, in one of the three."""

    loops: int  # at any depth
    outside: int  # of the rest, those that run once; in the branches of a Cond too
    inside: int  # those in the bodies of loops


class Stage(NamedTuple):
    """The effect of one pass. The graphs are copies, with the names of the inputs."""

    name: str
    before: FunctionGraph
    after: FunctionGraph
    counts: Counts  # of the graph after it


def stages(
    graph: FunctionGraph, passes: Sequence[Callable[[FunctionGraph], None]] | None = None
) -> Iterator[Stage]:
    """Run the passes on ``graph``, in place; what each did that changed something.

    ``passes`` are those of `lower` where none are given.
    """
    before, mark = thaw(graph), _mark(graph)
    for run in order.PASSES if passes is None else passes:
        run(graph)
        if mark != (mark := _mark(graph)):
            after = thaw(graph)
            yield Stage(run.__name__, before, after, counts(after))
            before = after


def _mark(graph: FunctionGraph) -> Any:
    """Equal for equal graphs, except for the names in them."""
    return graph.freeze(), len(graph.apply_nodes)


def counts(graph: AbstractFunctionGraph) -> Counts:
    """How many loops a graph has, and how many other nodes outside of them and in them."""
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
