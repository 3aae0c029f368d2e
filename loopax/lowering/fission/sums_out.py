"""A state that only accumulates leaves its loop, as the sum of a trace.

    total, = scan(lambda s, t, r: (g(s, r), t + f(s, r)), s, t, x)
    ->
    ys = scan(lambda s, r: (g(s, r), f(s, r)), s, x);  total = t + ys.sum()

Condition: the state is a float, or a few, and only its final value is read, in the step or after it; the
loop does not stop and keeps no checkpoints, and its trip count is known before it runs. The added terms can
leave the loop: `split_loops`, the next pass, then makes them one operation on all rows. So nothing larger
is stored than a trace of the states that the terms depend on.

Reason: the gradient with respect to each constant that a step reads is such a state. XLA on the CPU runs a
step as one function as long as its carry is small, and dispatches it piece by piece otherwise: the gradient
of an ARMA(1, 1) of 300 steps took 75 us with three such states, and takes 31 without.

The terms are added in another order. Only for array backends: in a native loop the additions are free.

In the literature: loop fission of a reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import is_elementwise
from loopax.ir.sizes import Dims
from loopax.lowering.analysis.open_lengths import KnownLengths
from loopax.lowering.fission.push_out import rewrite_loops
from loopax.lowering.fission.row_wise_body import entries
from loopax.lowering.fission.split_loops import leaving
from loopax.lowering.fusion.fusion_plan import can_be_fused
from loopax.lowering.open_loop import OpenLoop, State, Y

_MOST = 16  # elements of a state: of larger states, the terms of all steps take much memory


def sums_out(graph: FunctionGraph) -> None:
    """Run the pass on the bodies of ``graph``, and then on ``graph`` itself, in place."""
    rewrite_loops(graph, _without_sums, "sums_out")


def _without_sums(node: Apply, dims: Dims, known: KnownLengths) -> dict[Any, Any]:
    """Map outputs of ``node`` to outputs of the loop without accumulators, and to sums of traces."""
    op: Any = node.op
    if not can_be_fused(op) or not op.n_states or op.options.checkpoint is not None:
        return {}
    # Without a known number of steps, a trace may be allocated for the largest one possible.
    if not known.covers(dims.value(node.inputs[0])):
        return {}
    loop = OpenLoop.of(node)
    terms = {k: t for k, s in enumerate(loop.states) if (t := added_term(loop, s)) is not None}
    if not terms or len(terms) == len(loop.states):
        return {}
    sums = [loop.states[k] for k in terms]
    loop.states = [s for k, s in enumerate(loop.states) if k not in terms]
    loop.ys += [Y(t) for t in terms.values()]
    new: dict[Any, Any] = loop.close()
    traces = [y.new for y in loop.ys[-len(terms) :]]
    gone = leaving(traces[0].owner, dims, known)
    if not all(trace in gone for trace in traces):
        return {}
    for s, trace in zip(sums, traces, strict=True):
        new[s.final] = s.init + trace.sum(axis=0).astype(s.inner.type.dtype)
    return new


def added_term(loop: OpenLoop, state: State) -> Any:
    """The term that each step adds to ``state``; None if it does more, or if anything else reads it."""
    kind = state.inner.type
    if (
        not isinstance(kind, DenseTensorType)
        or kind.dtype not in ("float32", "float64")
        or kind.ndim > 1
        or entries(state.inner) > _MOST
        or not (chain := _additions(state))
    ):
        return None
    outputs = [v for s in loop.states if s is not state for v in [s.next]]
    outputs += [y.inner for y in loop.ys]
    own = {state.inner, *(node.outputs[0] for node in chain)}
    others = [n for n in toposort([*outputs, state.next]) if n not in chain]
    if not own.isdisjoint(outputs) or any(not own.isdisjoint(n.inputs) for n in others):
        return None
    total: Any = None
    for node in reversed(chain):
        total = _added(node, own, total)
    return total if total.type == kind and state.inner not in ancestors([total]) else None


def _additions(state: State) -> list[Apply]:
    """The nodes by which the step adds to ``state``, last first; empty if it does anything else to it."""
    additions: list[Apply] = []
    v = state.next
    while v is not state.inner:
        node = v.owner
        if node is None or not _adds(node):
            return []
        through = [
            k
            for k, u in enumerate(node.inputs)
            if u is state.inner or state.inner in ancestors([u])
        ]
        if len(through) != 1 or (through != [0] and not is_elementwise(node, ps.Add)):
            return []
        additions.append(node)
        v = node.inputs[through[0]]
        if v.type.shape != state.inner.type.shape or v.type.dtype != state.inner.type.dtype:
            return []
    return additions


def _adds(node: Apply) -> bool:
    op: Any = node.op
    if isinstance(op, IncSubtensor):
        return not op.set_instead_of_inc
    return is_elementwise(node, ps.Add, ps.Sub)


def _added(node: Apply, own: set[Variable], total: Variable | None) -> Any:
    """Apply ``node`` to ``total``, the sum of the terms so far, in place of the state; None is zero."""
    op: Any = node.op
    if total is None and is_elementwise(node, ps.Add, ps.Sub):
        others: list[Any] = [v for v in node.inputs if v not in own]
        if not is_elementwise(node, ps.Add):
            return -others[0]
        return others[0] if len(others) == 1 else op(*others)
    if total is None:
        kind: Any = node.outputs[0].type
        total = pt.constant(np.zeros(kind.shape, kind.dtype))
    return op(*(total if v in own else v for v in node.inputs))
