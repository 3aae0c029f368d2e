"""Values that do not depend on the iteration are computed before the loop.

    scan(c * inv(m) @ r)  ->  k = inv(m);  scan(c * k @ r)

Condition: a node of the step all of whose inputs are constants of the loop. A node that is cheap and cannot
raise (`loopax.ir.effects`) just moves. A node that may raise, or is costly, moves where the loop is known
to take a step, and otherwise under a guard:

    k = cond(n_steps > 0, inv(m), zeros(shape of m))

- The zeros have the shape that the result would have, which must be known without computing it: the
  trailing shape of an empty trace follows from it. An integer stays, as a shape may depend on it:
  behind a condition that JAX traces it would no longer be known.
- Random draws, writes, ops with effects or with derivatives of their own stay. So do all nodes in a branch
  of a Cond, which may never be taken, and in a loop with ``truncate_gradient``, which cuts derivatives.
- A trace of a loop that stops stays: its length would not be known at its destination.
- Free results (another view of the same numbers), and results made larger by at most a multiplication
  (a broadcast, an outer product), stay behind, unless they feed further nodes that move.

If a step raises two errors, the one of a moved node comes first, even before the error for a sequence of
the wrong length; errors of moved nodes keep their order.

Reason: a loop computes them in each step. XLA hoists some of them on its own, but none out of a gradient.

In the literature: loop-invariant code motion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, toposort, walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc
from pytensor.tensor.type import DenseTensorType

from loopax.facts.elementwise import is_elementwise
from loopax.ir import BodyArgs, BodyOuts, Cond, Scan, ScanArgs
from loopax.ir.effects import Speculation, speculation
from loopax.ir.ops.calling_convention import INDEX_TYPE
from loopax.ir.ops.inner_graph_op import InnerGraphOp
from loopax.ir.replace import replaced
from loopax.ir.shapes import filled, trailing_shapes
from loopax.ir.sizes import Dims, dims_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.open_loop import Input, OpenLoop, replace_outputs
from loopax.lowering.redundancy.merge_inputs import Numbers


def hoist_invariants(graph: FunctionGraph) -> None:
    """Run the pass on the bodies of ``graph``, and then on ``graph``, in place.

    So a value that leaves an inner loop can leave the outer ones too.
    """
    map_bodies(graph, hoist_invariants)
    dims = dims_of(graph)
    for node in graph.toposort():
        if isinstance(node.op, Scan) and (new := _hoisted(node, dims)):
            replace_outputs(graph, new, "hoist_invariants")


def _hoisted(node: Apply, dims: Dims) -> dict[Any, Any]:
    """Map outputs of ``node`` to outputs of a loop that computes less; empty if nothing can move."""
    op: Any = node.op
    if op.options.truncate_gradient >= 0:
        return {}
    always = dims.at_least(dims.value(node.inputs[0]), 1)
    body = op.fgraph
    if not _Invariants(body.toposort(), body.outputs, op.args.consts, always).leave():
        return {}  # decided without copying the body
    loop = OpenLoop.of(node)
    outputs = loop.outputs()
    step = _Invariants(toposort(outputs), outputs, [c.inner for c in loop.consts], always)
    numbers = Numbers()
    for p in step.own:
        numbers.enter(p)
    while True:  # terminates: each round hoists fewer nodes
        first: dict[Any, Any] = {}  # equal values are hoisted once
        alike = {v: first.setdefault((numbers.number(v), v.type), v) for v in step.leave()}
        leaving = list(first.values())
        guarded = [v for v in leaving if step.is_guarded(v)]
        guard = _Guard(guarded, step)
        unknown = [v for v, dims in zip(guarded, guard.shapes, strict=True) if dims is None]
        if not unknown:
            break
        step.refused.update(v for v, w in alike.items() if w in unknown)
    if not leaving:
        return {}
    free = [v for v in leaving if not step.is_guarded(v)]
    outside = {c.inner: c.outer for c in loop.consts}
    outer = replaced([*free, *guard.reads], outside)
    results = dict(zip(free, outer[: len(free)], strict=True))
    results |= zip(guarded, guard.bind(loop.n_steps, outer[len(free) :]), strict=True)
    dummies = {v: v.type() for v in leaving}
    loop.set_outputs(replaced(outputs, {v: dummies[w] for v, w in alike.items()}))
    loop.consts += [Input(dummies[v], v.type.filter_variable(results[v])) for v in leaving]
    read = {*ancestors(loop.outputs())}
    loop.consts = [c for c in loop.consts if c.inner in read or c.inner not in step.freed]
    return loop.close()


class _Invariants:
    """The nodes of a body that depend on its constants alone.

    Parameters
    ----------
    nodes, outputs
        The nodes and outputs of the step, in order.
    consts
        The loop-invariant inputs of the step.
    always
        Whether there is a step in every run.
    """

    def __init__(
        self,
        nodes: Iterable[Apply],
        outputs: Iterable[Variable],
        consts: Sequence[Variable],
        always: bool,
    ) -> None:
        self.nodes, self.outputs = list(nodes), outputs
        self.refused: set[Variable] = set()  # variables whose shape is unknown outside
        self.freed: set[Variable] = set()  # operands of hoisted nodes
        self.own: dict[Apply, Speculation] = {}  # nodes that depend on loop constants
        self.guarded: set[Apply] = set()  # nodes in `own` that run under the guard
        # PyTensor folds nodes that depend on Constants alone: they move with their readers.
        self.of_constants: set[Apply] = set()
        same = {*consts}
        for node in self.nodes if consts else ():
            variables = [v for v in node.inputs if not isinstance(v, Constant)]
            if not all(v in same for v in variables):
                continue
            own = speculation(node)
            if own is Speculation.FIXED or _has_open_length(node.op):
                continue
            self.own[node] = own
            same.update(node.outputs)
            if all(v.owner in self.of_constants for v in variables):
                self.of_constants.add(node)
            if not always and (
                own is Speculation.GUARDED or any(v.owner in self.guarded for v in variables)
            ):
                self.guarded.add(node)

    def is_guarded(self, v: Variable) -> bool:
        return v.owner in self.guarded

    def leave(self) -> list[Any]:
        """The variables to hoist: the rest of the step reads them, not only further hoisted nodes."""
        read = {*self.outputs}
        leaving: list[Any] = []
        self.freed = set()
        for node in reversed(self.nodes):
            wanted = [v for v in node.outputs if v in read]
            if not wanted and node in self.own:
                self.freed.update(node.inputs)
            elif node in self.own and all(self._may_leave(v) for v in wanted):
                leaving += reversed(wanted)
                self.freed.update(node.inputs)
            else:
                read.update(node.inputs)
        return leaving[::-1]  # in the order of the step

    def _may_leave(self, v: Variable) -> bool:
        is_tensor = isinstance(v.type, DenseTensorType)
        if not is_tensor or v.owner in self.of_constants or _is_spread(v.owner):
            return False
        if self.own[v.owner] is Speculation.FREE:
            return False
        if not self.is_guarded(v):
            return True
        return v not in self.refused and v.type.dtype.startswith(("float", "complex"))


def _has_open_length(op: Op) -> bool:
    if isinstance(op, Scan) and op.stops and op.n_ys:
        return True
    return isinstance(op, InnerGraphOp) and any(
        _has_open_length(node.op) for node in op.fgraph.toposort()
    )


_SIMPLE = (ps.Add, ps.Sub, ps.Mul, ps.Second, ps.Switch, ps.LogicalComparison)


def _is_spread(node: Apply) -> bool:
    """Whether ``node`` only enlarges its inputs, so that its result is better recomputed than stored."""
    op: Any = node.op
    if isinstance(op, Alloc):
        return True
    if not is_elementwise(node, *_SIMPLE):
        return False
    if is_elementwise(node, ps.Second):
        return True
    spread = [n != 1 for n in node.outputs[0].type.shape]
    return not any(
        all(n != 1 for n, s in zip(v.type.shape, spread, strict=True) if s) for v in node.inputs
    )


# -- the guard ---------------------------------------------------------------------------------------


class _Guard:
    """The Cond that computes ``results`` or, if there is no step, zeros of their shapes.

    Parameters
    ----------
    results
        Variables of the step.
    step
        The invariants of the step.
    """

    def __init__(self, results: list[Variable], step: _Invariants) -> None:
        self.reads = _operands(results, step)
        self.operands = [v.type() for v in self.reads]
        self.results = replaced(results, dict(zip(self.reads, self.operands, strict=True)))
        self.shapes = self._shapes() if results else []

    def _shapes(self) -> list[Any]:
        """The shape of each result in terms of the operands, None where it takes computing the result."""
        inner = [v.type() for v in self.operands]
        ys = replaced(self.results, dict(zip(self.operands, inner, strict=True)))
        step = Scan.from_body(BodyArgs(INDEX_TYPE(), [], [], inner), BodyOuts([], ys))
        outer = ScanArgs(pt.constant(1, dtype="int64"), [], [], self.operands)
        return [_plain(shape) for shape in trailing_shapes(step, outer)]

    def bind(self, n_steps: Variable, operands: list[Variable]) -> list[Any]:
        if not self.results:
            return []
        zeros: list[Any] = [
            filled(pt.constant(0, dtype=v.type.dtype), shape)
            for v, shape in zip(self.results, self.shapes, strict=True)
        ]
        cond = Cond.from_branches(self.operands, self.results, zeros, "if there is a step")
        return cond.bind(pt.gt(n_steps, 0), operands)


def _operands(results: list[Variable], step: _Invariants) -> list[Any]:
    """The variables that guarded nodes read: constants, and tensors that are computed anyway."""

    def is_operand(v: Variable) -> bool:
        return v.owner is None or (
            step.own.get(v.owner) is Speculation.CHEAP
            and isinstance(v.type, DenseTensorType)
            and v.owner not in step.guarded
            and v.owner not in step.of_constants
        )

    read = walk(results, lambda v: [] if is_operand(v) else v.owner.inputs, bfs=False)
    return [v for v in read if is_operand(v) and not isinstance(v, Constant)]


def _plain(shape: Sequence[Variable]) -> Any:
    """Strip the checks from ``shape``; None if it takes more than arithmetic."""
    if shape is None:
        return None
    dims = [pt.as_tensor(n) for n in shape]
    # Checks compare the shapes of the inputs of a step; these shapes are for a loop that takes no step.
    for node in reversed([n for n in toposort(dims) if isinstance(n.op, CheckAndRaise)]):
        dims = replaced(dims, {node.outputs[0]: node.inputs[0]})
    if any(speculation(node) > Speculation.CHEAP for node in toposort(dims)):
        return None
    return [n.astype("int64") for n in dims]
