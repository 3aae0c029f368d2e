"""Apply a change of a graph to the bodies of its ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.features import Feature
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.tensor.blockwise import Blockwise

from loopax.base.upstream.pytensor import copy_origin
from loopax.ir.ops.cond import Cond
from loopax.ir.ops.inner_graph_op import InnerGraphOp, core_of
from loopax.ir.replace import replaced

Change = Callable[[FunctionGraph], None]
Where = Callable[[AbstractFunctionGraph], bool]


def with_body(op: Op) -> InnerGraphOp | None:
    """The loopax op with a body: ``op``, or the core op it is a batch of. None for any other op."""
    core = core_of(op)
    return core if isinstance(core, InnerGraphOp) else None


def has_bodies(graph: AbstractFunctionGraph) -> bool:
    """Whether an op of ``graph`` has an inner graph, including PyTensor's ops, which are left unchanged."""
    return any(isinstance(core_of(node.op), HasInnerGraph) for node in graph.apply_nodes)


def with_nodes(is_meant: Callable[[Apply], bool]) -> Where:
    """Build a condition for `map_bodies`: a body has a matching node, or bodies of its own."""
    return lambda body: has_bodies(body) or any(map(is_meant, body.apply_nodes))


def except_rare(graph: AbstractFunctionGraph) -> Where:
    """Build a condition for `map_bodies`: branches that nearly no call takes stay short."""
    ops = [core_of(node.op) for node in graph.apply_nodes]
    likely = {op.fgraph for op in ops if isinstance(op, Cond) and op.is_likely}
    return lambda body: has_bodies(body) and body not in likely


def map_bodies(graph: FunctionGraph, change: Change, where: Where = has_bodies) -> None:
    """Run ``change``, which works in place, on a copy of each body of the ops of ``graph``.

    Bodies inside a body are left to ``change``. An op whose body comes back equal stays as it is. ``where``
    takes a body, frozen as it is, and says whether there may be anything to do: to copy and freeze a body
    costs more than most passes. By default, a pass that changes loops looks into bodies with loops. Equal
    bodies, for example of instances of one loop, are changed once if their names and lines are equal, too.
    """
    done: dict[FrozenFunctionGraph, list[tuple[Any, InnerGraphOp]]] = {}

    def changed(op: InnerGraphOp) -> InnerGraphOp:
        known = done.setdefault(op.fgraph, [])
        for written, new in known:
            if _have_equal_origins(written, op.written):
                return _with_body_of(op, new)
        known.append((op.written, _with(op, change, where)))
        return known[-1][1]

    for node in graph.toposort():
        core = with_body(node.op)
        if core is None:
            continue
        op: Op = changed(core)
        if op is not core:
            if isinstance(node.op, Blockwise):
                op = Blockwise(op, signature=node.op.signature, name=node.op.name)
            new = op.make_node(*node.inputs)
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            for old, v in pairs:
                copy_origin(old, v)
            graph.replace_all(pairs, reason="map_bodies")


def alternate(graph: FunctionGraph, once: Callable[[FunctionGraph], bool], change: Change) -> None:
    """Alternate between ``once`` on ``graph`` and ``change`` on its bodies until ``once`` finds nothing.

    Smaller bodies may leave more to do around them. It terminates: each round makes the graph smaller.
    """
    once(graph)
    while True:
        map_bodies(graph, change)
        if not once(graph):
            return


def replace_nodes(
    graph: FunctionGraph, is_meant: Callable[[Any], bool], new: Callable[[Apply], Any], reason: str
) -> None:
    """Replace in place, in bodies too, the first output of each node whose op ``is_meant`` with ``new``."""

    def change(graph: FunctionGraph) -> None:
        for node in graph.toposort():
            if is_meant(node.op):
                pair = node.outputs[0], new(node)
                graph.replace(*pair, reason=reason, import_missing=True)
        map_bodies(graph, change, concerns)

    concerns = with_nodes(lambda node: is_meant(node.op))
    change(graph)


def rebranched(
    node: Apply, branches: Sequence[FunctionGraph], outputs: Sequence[Sequence[Variable]]
) -> list[Variable]:
    """The results of the Cond ``node`` with other ``outputs``, computed in copies of its ``branches``."""
    op: Any = node.op
    operands = [v.type() for v in op.fgraph.inputs]
    then, otherwise = [
        replaced(outs, dict(zip(branch.inputs, operands, strict=True)))
        for branch, outs in zip(branches, outputs, strict=True)
    ]
    cond = op.with_branches(operands, then, otherwise)
    return cond.bind(node.inputs[0], node.inputs[1:])


def _with_body_of(op: InnerGraphOp, new: InnerGraphOp) -> InnerGraphOp:
    """Give ``op`` the body of ``new``; ``op`` itself where the bodies are equal."""
    if new.fgraph == op.fgraph:
        return op
    other = op.with_body(new.fgraph)
    other.written = new.written
    return other


def _have_equal_origins(first: FunctionGraph | None, second: FunctionGraph | None) -> bool:
    """Whether the variables of two equal graphs have the same names and source lines."""
    if first is second or first is None or second is None:
        return first is second
    # Equal nodes of one graph may be one node of the other: frozen, they are one in both.
    variables = [[v for node in g.toposort() for v in node.outputs] for g in (first, second)]
    return len(variables[0]) == len(variables[1]) and all(
        v.name == w.name and getattr(v.tag, "trace", None) == getattr(w.tag, "trace", None)
        for v, w in zip(*variables, strict=True)
    )


class _Changes(Feature):  # type: ignore[misc]  # PyTensor has no types
    """Records whether an input of a node, or an output of the graph, has changed."""

    any = False

    def on_change_input(self, *args: Any, **kwargs: Any) -> None:
        self.any = True


def _with(op: InnerGraphOp, change: Change, where: Where) -> InnerGraphOp:
    if not where(op.fgraph):
        return op
    graph = op.unfrozen()
    outputs = list(graph.outputs)
    changes = _Changes()
    graph.attach_feature(changes)
    change(graph)
    graph.remove_feature(changes)
    if not changes.any:  # the usual case, and freezing takes two thirds of this function's time
        return op
    for old, v in zip(outputs, graph.outputs, strict=True):
        # A rewrite of PyTensor's keeps the lines of what it replaces, and no name.
        if v.owner is not None:
            v.name = v.name or old.name
    new = op.with_graph(graph)
    return op if new.fgraph == op.fgraph else new
