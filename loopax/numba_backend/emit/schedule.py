"""The order in which the terms of a sum, or the factors of a product, are taken.

A step waits for the states of the step before, and for nothing else. So what is there early is taken
first, and what a state leads to last: ``p1 * y1 + (p2 * y2 + e)`` with the latest state ``y1`` ran an
AR(2) in 0.8 of the time of ``(p1 * y1 + p2 * y2) + e``, and the gradient of a Runge-Kutta step in 0.84.
What no step changes comes before all, and so out of the loop.

The two earliest are taken together, again and again, as Huffman (1952) does it, so that the whole is
there as early as it can be: for "the later of two, and a little more" this is Golumbic's (1976) result.
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
    """When a value is there, in cycles of a step; -1 for what no step changes."""
    if emit.scopes.level(name) < emit.scopes.depth:
        return -1
    return emit.ready.get(name, 0)


def folded(emit: Emitter, operands: Sequence[Expr], join: Join) -> Expr:
    """``operands``, all added or multiplied, the earliest ones innermost."""
    return _folded([(ready(emit, x), k, x) for k, x in enumerate(operands)], join)


def sum_of_products(emit: Emitter, pairs: Sequence[tuple[Expr, Expr]]) -> Expr:
    """The sum of ``a * b`` for each of ``pairs``, in the order in which these are there."""
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
    """For each state of ``scan`` how long the step takes to find what follows it.

    What only copies another state is there at once.
    """
    when: dict[Any, float] = dict.fromkeys(scan.args.states, 0)
    for node in scan.fgraph.toposort():
        known = [when[v] for v in node.inputs if v in when]
        if not known or (isinstance(node.op, Subtensor) and node.inputs[0] not in when):
            continue  # a row that is read at the count of the steps is there before it is needed
        op: Any = node.op
        function = scalar_op_of(op)
        took = 8 if function is None else cycles(function)
        when.update((v, max(known) + took) for v in node.outputs)
    return [when.get(v, 0) for v in scan.outs.states]
