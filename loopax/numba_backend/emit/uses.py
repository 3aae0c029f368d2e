"""Readers of a variable, which decide whether it is stored, and whether it may be overwritten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Second
from pytensor.tensor.shape import Shape, Shape_i

from loopax.facts.elementwise import scalar_op_of

Uses = dict[Variable, list[Any]]  # (node, position), and (None, k) for output k of the graph

# By Op class: whether a node reads each element of its input k at most once.
READS_ONCE: dict[type, Callable[[Apply, int], bool]] = {}


def read_once(variable: Variable, uses: Uses) -> bool:
    """Whether each element of ``variable`` is read at most once, in one place."""
    reads = reads_of(variable, uses)
    return len(reads) == 1 and _reads_once(*reads[0], uses)


def few_reads(variable: Variable, uses: Uses) -> bool:
    """Whether each element of ``variable`` is read at most once in each of one or two places."""
    reads = reads_of(variable, uses)
    return 1 <= len(reads) <= 2 and all(_reads_once(c, k, uses) for c, k in reads)


def reads_of(variable: Variable, uses: Uses) -> list[tuple[Any, int]]:
    return [(c, k) for c, k in uses[variable] if not reads_only_shape(c, k)]


def _reads_once(client: Apply | None, position: int, uses: Uses) -> bool:
    if client is None:
        return True
    if isinstance(client.op, CheckAndRaise) and position == 0:  # it returns its input
        return read_once(client.outputs[0], uses)
    tests = [READS_ONCE[cls] for cls in type(client.op).__mro__ if cls in READS_ONCE]
    return bool(tests) and tests[0](client, position)


def uses_of(graph: AbstractFunctionGraph) -> Uses:
    """Readers of each variable: (node, position), and (None, k) for output k of the graph."""
    uses: Uses = {v: [] for v in graph.inputs}
    for node in graph.toposort():
        uses.update((v, []) for v in node.outputs)
        for k, v in enumerate(node.inputs):
            uses.setdefault(v, []).append((node, k))
    for k, v in enumerate(graph.outputs):
        uses.setdefault(v, []).append((None, k))
    return uses


def reads_only_shape(client: Apply | None, position: int) -> bool:
    """Whether a node (None for an output of the graph) reads no element of its input ``position``."""
    if client is None:
        return False
    return isinstance(client.op, Shape | Shape_i) or (is_fill(client.op) and position == 0)


def is_fill(op: Op) -> bool:
    """Whether ``op`` broadcasts its second input to the shape of both."""
    return isinstance(scalar_op_of(op), Second)


def uses_of_node(node: Apply) -> Uses:
    """The uses in a single node, whose outputs are the outputs of the graph."""
    uses: Uses = {v: [(None, k)] for k, v in enumerate(node.outputs)}
    for k, v in enumerate(node.inputs):
        uses.setdefault(v, []).append((node, k))
    return uses
