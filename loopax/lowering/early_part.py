"""The part of a program that depends on shared variables alone: ``f(g(w), x)`` -> ``g(w)``, ``f(v, x)``.

Condition: as for `fold_constants`; the variables are arrays, and the program updates none of them. Their
current values determine the sizes of the results and the cost of computing them.

Reason: data are shared variables in most models, and change seldom. The first part is computed once for
each set of their values (`loopax.calling.memo`), the second at each call. To check whether an array is
still the same takes about a nanosecond for each number: the part is split off where it costs several times
that.

Constants stay in the program, also large ones: as arguments of a compiled call they made a log-density with
a basis of 2000 x 200 take 3.4 times as long in JAX.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import scalar_op_of
from loopax.facts.scalars import ARITHMETIC, nanoseconds
from loopax.ir.ops.inner_graph_op import core_of
from loopax.ir.program import EarlyPart, Program
from loopax.ir.replace import replaced
from loopax.lowering.order import CANONICAL_PASSES, run_passes
from loopax.lowering.redundancy.fold_constants import kept_values, known_values

# What is computed and what is compared, in numbers of an array that a simple operation goes over.
_LOOK = 2000  # to look at an array at all
_WORTH = 4


def early_part(program: Program) -> EarlyPart | None:
    """Split a lowered program into two parts, or return None where that does not pay."""
    now = _arrays(program)
    if not now:
        return None
    values = known_values(program.graph, now)
    if len(values) == len(now):
        return None
    kept = [
        v for v in kept_values(program.graph, values) if not now.keys().isdisjoint(ancestors([v]))
    ]
    behind = set(ancestors(kept))
    read = [v for v in now if v in behind]
    work = sum(_work(v.owner, values) for v in behind if v.owner and v in v.owner.outputs[:1])
    if not read or work < _WORTH * sum(now[v].size + _LOOK for v in read):
        return None
    return _parts(program, kept, read)


def early_part_as_read(program: Program) -> EarlyPart | None:
    """Split a program in its state before the passes; ``residual`` has derivatives, and is not lowered.

    Computations that only the passes take out of a loop are not in ``early``.
    """
    if not _arrays(program):
        return None
    read = program.before_passes()
    # What is stable as a whole may not be in parts.
    run_passes(read.graph, CANONICAL_PASSES, program.canonical)
    return early_part(read)


def _arrays(program: Program) -> dict[Variable, np.ndarray]:
    """The shared variables whose changes can be detected, with their values."""
    shared = zip(program.graph.inputs[len(program.inputs) :], program.shared, strict=True)
    return {
        v: s.value
        for k, (v, s) in enumerate(shared)
        if k not in program.updates
        and isinstance(v.type, DenseTensorType)
        and isinstance(s.value, np.ndarray)
    }


def _parts(program: Program, kept: list[Variable], read: list[Variable]) -> EarlyPart:
    graph, n = program.graph, len(program.inputs)
    early = FunctionGraph(read, kept, clone=True)
    new = [v.type.make_variable() for v in kept]
    outputs = replaced(graph.outputs, dict(zip(kept, new, strict=True)))
    shared, seen = list(graph.inputs[n:]), set(ancestors(outputs))
    left = [k for k, v in enumerate(shared) if v in seen]
    inputs = [*graph.inputs[:n], *(shared[k] for k in left), *new]
    residual = FunctionGraph(inputs, outputs, clone=True)
    return EarlyPart(early, tuple(shared.index(v) for v in read), residual, tuple(left))


def _work(node: Apply, values: dict[Variable, Any]) -> float:
    """The work of a node, in entries processed by a simple operation."""
    op: Any = node.op
    size = float(sum(np.size(values[v]) for v in node.outputs if v in values))
    read = float(sum(np.size(values.get(v, 0)) for v in node.inputs))
    core = core_of(op)
    if (function := scalar_op_of(op)) is not None:
        return size * max(1.0, nanoseconds(function) / ARITHMETIC)
    if isinstance(core, Dot):
        first = values.get(node.inputs[0], getattr(node.inputs[0], "data", 0))
        return size * max(np.shape(first)[-1:] or (1,)) / 4
    if type(core).__module__.startswith("pytensor.tensor.linalg") or isinstance(op, Blockwise):
        return max(size, read) * float(max(np.shape(values[node.outputs[0]])[-1:] or (1,)))
    return max(size, read) if node.op.view_map == {} else 0.0
