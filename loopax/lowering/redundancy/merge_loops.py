"""Loops that carry the same states through the same steps -> one loop with the traces of both.

Condition: the same inputs in the same order, the same computation of states and stop flag, the same
options. The traces may differ: the merged loop has their union.

Reason: a pullback that needs the states before each step asks a twin of its loop for them, so that
each derivative doubles the loops of the one before. Two loops with different stop conditions are
never twins (PyTensor issue 510 was such a merge, and issue 2252 a merge of an echoed input with
a state).

In the literature: common subexpression elimination of loops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer

from loopax.base.upstream.pytensor import freeze
from loopax.ir import Scan
from loopax.ir.replace import replaced
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import OpenLoop, Y, replace_outputs


def merge_loops(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and then on its bodies."""
    # A round may make loops equal that read traces of merged loops. It terminates: each removes a loop.
    while _merge_some(graph):
        pass
    map_bodies(graph, merge_loops)


def _merge_some(graph: FunctionGraph) -> bool:
    if sum(isinstance(node.op, Scan) for node in graph.apply_nodes) < 2:
        return False
    MergeOptimizer().rewrite(graph)  # equal inputs are one variable from here on
    loops = [node for node in graph.toposort() if isinstance(node.op, Scan)]
    # Few loops share all inputs: comparing the steps of all loops took a fifth of the time of all passes.
    alike = _groups(loops, lambda node: tuple(node.inputs))
    twins = [twin for group in alike for twin in _groups(group, lambda node: _steps(node.op))]
    for group in twins:
        _merge(graph, group)
    return bool(twins)


def _groups(loops: list[Apply], key: Callable[[Any], Any]) -> list[list[Apply]]:
    """The groups of two or more ``loops`` with equal keys."""
    groups: dict[Any, list[Apply]] = defaultdict(list)
    for node in loops:
        groups[key(node)].append(node)
    return [group for group in groups.values() if len(group) > 1]


def _steps(op: Scan) -> Any:
    """A key of mergeable loops: all of the loop except its traces."""
    body = op.unfrozen()
    outs = op.split_body_outputs(body.outputs)
    states = FunctionGraph(
        body.inputs, [*outs.states, *([outs.stop] if op.stops else [])], clone=False
    )
    return freeze(states), op.n_seqs, op.n_states, op.stops, op.options.meaning


def _merge(graph: FunctionGraph, group: list[Apply]) -> None:
    loop = OpenLoop.of(group[0])
    same: dict[Any, Any] = {}  # final outputs of the other loops -> outputs of the first
    for node in group[1:]:
        other = OpenLoop.of(node)
        inside = dict(zip(other.inner.flat(), loop.inner.flat(), strict=True))
        rows = replaced([y.inner for y in other.ys], inside)
        loop.ys += [Y(row, y.trace) for row, y in zip(rows, other.ys, strict=True)]
        same |= zip(_not_traces(node), _not_traces(group[0]), strict=True)
    new = loop.close()
    replace_outputs(graph, new | {v: new[first] for v, first in same.items()}, "merge_loops")


def _not_traces(node: Apply) -> list[Any]:
    return node.op.split_outputs(node.outputs)._replace(traces=[]).flat()
