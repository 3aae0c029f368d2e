"""Order of the terms of a sum, or the factors of a product, by the time at which they are ready.

A step waits only for the states of the previous step. So terms that are ready early are joined first,
and terms that depend on a state last: ``p1 * y1 + (p2 * y2 + e)`` with the latest state ``y1`` ran an
AR(2) in 0.8 of the time of ``(p1 * y1 + p2 * y2) + e``, and the gradient of a Runge-Kutta step in 0.84.
Terms that no step changes come first of all, and so out of the loop.

The two earliest terms are joined, again and again, as in Huffman (1952), so that the whole is ready as
early as possible: for the cost "the later of two, plus a constant" this is Golumbic's (1976) result.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from operator import add
from typing import Any

from pytensor.tensor.subtensor import Subtensor

from loopax.facts.elementwise import scalar_op_of
from loopax.facts.scalars import cycles
from loopax.ir import Scan
from loopax.numba_backend.emit.emitter import Emitter
from loopax.numba_backend.emit.expressions import Expr

Join = Callable[[Expr, Expr], Expr]


def ready(emit: Emitter, name: Expr) -> float:
    """The cycle of a step at which a value is ready; -1 for a value that no step changes."""
    if emit.scopes.level(name) < emit.scopes.depth:
        return -1
    return emit.ready.get(name, 0)


def folded(emit: Emitter, operands: Sequence[Expr], join: Join) -> Expr:
    """Add or multiply all ``operands``, the earliest ones innermost."""
    return _folded([(ready(emit, x), k, x) for k, x in enumerate(operands)], join)


def sum_of_products(emit: Emitter, pairs: Sequence[tuple[Expr, Expr]]) -> Expr:
    """The sum of ``a * b`` over ``pairs``, in the order in which they are ready."""
    heap = []
    for k, (a, b) in enumerate(pairs):
        when = max(ready(emit, a), ready(emit, b))
        heap.append((when + 4 if when >= 0 else when, k, a * b))
    return _folded(heap, add)


def _folded(heap: list[tuple[float, int, Expr]], join: Join) -> Expr:
    heapq.heapify(heap)
    while len(heap) > 1:
        _, _, a = heapq.heappop(heap)
        later, k, b = heapq.heappop(heap)
        heapq.heappush(heap, (later + (4 if later >= 0 else 0), k, join(a, b)))
    return heap[0][2]


def chains(scan: Scan) -> list[float]:
    """The latency of a step, in cycles, from the old states to each new state of ``scan``.

    A copy of another state has no latency.
    """
    ready_at: dict[Any, float] = dict.fromkeys(scan.args.states, 0)
    for node in scan.fgraph.toposort():
        input_times = [ready_at[v] for v in node.inputs if v in ready_at]
        if not input_times or (isinstance(node.op, Subtensor) and node.inputs[0] not in ready_at):
            continue  # a row of a sequence, read at the step's index, is ready in advance
        op: Any = node.op
        function = scalar_op_of(op)
        latency = 8 if function is None else cycles(function)
        ready_at.update((v, max(input_times) + latency) for v in node.outputs)
    return [ready_at.get(v, 0) for v in scan.outs.states]
