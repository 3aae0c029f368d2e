"""Lazy conditionals ``IfElse`` -> ``Cond``; nodes that only one branch needs move into that branch.

    ifelse(c, f(x), g(x))  ->  Cond(c, x) with the branches f and g

Conditionals with the same condition are merged first, where none needs the result of another: what their
branches share is then read by one branch alone.

A node moves where its outputs are read by that branch alone: by no other node outside of it, by
neither the other branch nor the condition, and not by the program. So nothing is computed that was
not before, and a branch that is not chosen costs nothing; nothing is computed twice, except for operands
shared by two conditionals of one condition that cannot be merged. PyTensor's C virtual machine is as lazy;
its Python, JAX and Numba modes compute both branches.

Random draws stay outside: a draw belongs to the state that it leaves behind, which is read elsewhere.

Condition: none. It comes after `stabilize`, whose rewrites see through an IfElse and not into a Cond.

In the literature: code sinking into branches.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.tensor.random.op import RandomVariable

from loopax.base.upstream.pytensor import IfElse
from loopax.ir import Cond
from loopax.ir.named_axes import axis_names, lower_names
from loopax.ir.replace import replaced
from loopax.lowering.bodies import has_bodies, map_bodies
from loopax.lowering.canonical.sink_readers import branches_of, sink_readers


def if_else_to_cond(graph: FunctionGraph) -> None:
    """Replace every IfElse of ``graph`` and of the bodies in it, in place."""
    map_bodies(graph, if_else_to_cond, where=has_if_else)
    _merge_those_of_one_condition(graph)
    for node in graph.toposort():  # innermost first: an inner one then moves as one node
        if isinstance(node.op, IfElse):
            pairs = list(zip(node.outputs, _cond(graph, node), strict=True))
            graph.replace_all(pairs, reason="if_else_to_cond")


def with_conds(outputs: Sequence[Variable]) -> list[Variable]:
    """Replace every IfElse that ``outputs`` depend on by a Cond, for a transformation that follows.

    Operations on named axes, which have no derivatives in PyTensor, become plain operations.

    The gradient of an IfElse goes through both of its branches, and is zero in one; the gradient of a Cond
    is a Cond. So is its batch, where each branch should be computed only for the rows that take it. Nodes
    are copied, so that the graph of ``outputs`` stays as it is.
    """
    if not any(_is_foreign(node) for node in toposort(outputs)):
        return list(outputs)
    roots = [v for v in graph_inputs(outputs) if not isinstance(v, Constant)]
    dummies: dict[Variable, Variable] = {v: v.type() for v in roots}
    graph = FunctionGraph([*dummies.values()], replaced(outputs, dummies), clone=True)
    _lower_names(graph)
    sink_readers(graph)
    if_else_to_cond(graph)
    return replaced(graph.outputs, dict(zip(graph.inputs, roots, strict=True)))


def _is_foreign(node: Apply) -> bool:
    named = any(axis_names(v) is not None for v in [*node.inputs, *node.outputs])
    return named or isinstance(node.op, IfElse | HasInnerGraph)


def _lower_names(graph: FunctionGraph) -> None:
    lower_names(graph)  # PyTensor has no derivatives of operations on named axes
    map_bodies(graph, _lower_names)


def has_if_else(body: AbstractFunctionGraph) -> bool:
    """Whether ``body``, or a body of its ops, contains an IfElse."""
    return has_bodies(body) or any(isinstance(node.op, IfElse) for node in body.apply_nodes)


def _merge_those_of_one_condition(graph: FunctionGraph) -> None:
    latest: dict[Variable, Apply] = {}
    for node in graph.toposort():
        if not isinstance(node.op, IfElse):
            continue
        condition = node.inputs[0]
        before = latest.get(condition)
        # Check the current graph: an earlier merger may have made one depend on the other.
        if before is not None and not (
            _needs(node, before) or _needs(before, node) or _are_apart(graph, before, node)
        ):
            node = _one(graph, before, node)
        latest[condition] = node


def _needs(node: Apply, other: Apply) -> bool:
    return any(v.owner is other for v in ancestors(node.inputs))


def _are_apart(graph: FunctionGraph, a: Apply, b: Apply) -> bool:
    """Whether ``a`` and ``b`` are in opposite branches of another conditional: only one of them runs."""
    for node in graph.apply_nodes:
        if isinstance(node.op, IfElse):
            then, otherwise = _only_for(graph, node, True), _only_for(graph, node, False)
            if (a in then and b in otherwise) or (b in then and a in otherwise):
                return True
    return False


def _one(graph: FunctionGraph, a: Apply, b: Apply) -> Apply:
    then, otherwise = [x + y for x, y in zip(branches_of(a), branches_of(b), strict=True)]
    new: Apply = IfElse(len(then), name=a.op.name).make_node(a.inputs[0], *then, *otherwise)
    pairs = list(zip([*a.outputs, *b.outputs], new.outputs, strict=True))
    graph.replace_all(pairs, reason="if_else_to_cond")
    return new


def _cond(graph: FunctionGraph, node: Apply) -> list[Variable]:
    """The outputs of the Cond that replaces the IfElse ``node``."""
    op = node.op
    condition = node.inputs[0]
    branches = branches_of(node)
    moved = _only_for(graph, node, True) | _only_for(graph, node, False)
    results = [v for branch in branches for v in branch]
    inside = [a for a in toposort(results) if a in moved]
    computed = {v for a in inside for v in a.outputs}
    read = [*results, *(v for a in inside for v in a.inputs)]
    operands = [v for v in dict.fromkeys(read) if v not in computed and not isinstance(v, Constant)]
    dummies = dict(zip(operands, (v.type() for v in operands), strict=True))
    then, otherwise = [replaced(branch, dummies) for branch in branches]
    if condition.type.dtype != "bool":
        condition = pt.neq(condition, 0)
    return Cond.from_branches(list(dummies.values()), then, otherwise, op.name).bind(
        condition, operands
    )


def _only_for(graph: FunctionGraph, node: Apply, then: bool) -> set[Apply]:
    """The nodes that only one branch of ``node`` reads, directly or through one another.

    The same branch of other conditionals with this condition may read them too, if those could not be
    merged with ``node``: a value, and its gradient, which starts from a function of it. Each computes them
    again.
    """
    alike = [
        n for n in graph.apply_nodes if isinstance(n.op, IfElse) and n.inputs[0] is node.inputs[0]
    ]
    nodes: set[Apply] = set()
    # Readers come first, so that a single pass over the nodes suffices.
    for candidate in reversed(list(toposort([x for n in alike for x in branches_of(n)[not then]]))):
        readers = [reader for v in candidate.outputs for reader in graph.clients[v]]
        if not isinstance(candidate.op, RandomVariable) and all(
            reader in nodes or (reader in alike and k in _positions(reader, then))
            for reader, k in readers
        ):
            nodes.add(candidate)
    return nodes


def _positions(node: Apply, then: bool) -> range:
    n = node.op.n_outs
    return range(1, 1 + n) if then else range(1 + n, 1 + 2 * n)
