"""Readers of a conditional whose branches differ in shape move into the branches.

    sum(ifelse(c, x[:2], x))  ->  ifelse(c, sum(x[:2]), sum(x))

until the results of the branches have one shape. JAX must know the shape of a conditional while it traces;
a batch of them is one array, and so is a batch in native code.

Condition: the analysis of dimensions tells the two shapes apart, for example because one is a slice.
Unknown lengths, of two inputs for instance, are assumed to be equal. Random draws, and ops that print or
overwrite, stay where they are.

Reason: without it such a program runs in JAX only where the condition is known. It comes before
`conditional_gradients`, whose sums are then of one shape, and `if_else_to_cond`, which moves into each
branch what only that one needs.

In the literature: tail duplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.subtensor import BaseSubtensor
from pytensor.tensor.type import DenseTensorType

from loopax.base.upstream.pytensor import IfElse
from loopax.ir import Cond
from loopax.ir.effects import Effects, effects
from loopax.ir.replace import outputs_at, replaced
from loopax.ir.sizes import DimExpr, Dims, Length, unconditional_dims_of
from loopax.lowering.bodies import has_bodies, map_bodies

_MOST = 500  # most nodes that are moved: nested branches duplicate their readers exponentially
_CUTS = (BaseSubtensor, Nonzero)
_STAYS = Effects.DRAWS | Effects.PRINTS | Effects.OVERWRITES


def sink_readers(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    map_bodies(graph, sink_readers, where=has_bodies)
    for node in graph.toposort():
        if not isinstance(node.op, Cond):
            continue
        then, otherwise = _opened(node)
        if _unequal(node, then, otherwise, Dims()):
            new = IfElse(len(then))(node.inputs[0], *then, *otherwise, return_list=True)
            pairs = list(zip(node.outputs, new, strict=True))
            graph.replace_all(pairs, import_missing=True, reason="sink_readers")
    left, sunk = _MOST, set()
    stack = [node for node in reversed(graph.toposort()) if isinstance(node.op, IfElse)]
    while stack and left:
        node = stack.pop()
        if node not in graph.apply_nodes:
            continue
        dims = unconditional_dims_of(graph)
        # A value computed from branches of different shapes has different shapes, too, unless proved
        # otherwise.
        for v in _unequal(node, *branches_of(node), dims, in_doubt=node in sunk):
            for reader in dict.fromkeys(reader for reader, _ in graph.clients[v]):
                if not getattr(reader, "outputs", ()) or effects(reader.op) & _STAYS:
                    continue
                stack.append(_sink(graph, node.inputs[0], reader))
                sunk.add(stack[-1])
                left -= 1


def branches_of(node: Apply) -> tuple[list[Variable], list[Variable]]:
    """The operands of an IfElse where its condition is true, and where it is false."""
    n = node.op.n_outs
    return node.inputs[1 : 1 + n], node.inputs[1 + n :]


def _opened(node: Apply) -> tuple[list[Variable], list[Variable]]:
    """The branches of a `Cond` as variables of the graph around it."""
    outs, n = outputs_at(node.op.fgraph, node.inputs[1:]), node.op.n_outs
    return outs[:n], outs[n:]


def _unequal(
    node: Apply,
    then: Sequence[Variable],
    otherwise: Sequence[Variable],
    dims: Dims,
    in_doubt: bool = False,
) -> list[Variable]:
    """The outputs of ``node`` whose shapes differ between its branches, or, ``in_doubt``, may differ."""
    return [
        v
        for v, a, b in zip(node.outputs, then, otherwise, strict=True)
        if isinstance(v.type, DenseTensorType)
        and any(_differ(dims.length(a, k), dims.length(b, k), in_doubt) for k in range(v.type.ndim))
    ]


def _differ(a: DimExpr, b: DimExpr, in_doubt: bool) -> bool:
    surely = in_doubt or (a.constant is not None and b.constant is not None)
    return a != b and (surely or not (_is_given(a) and _is_given(b)))


def _is_given(length: DimExpr) -> bool:
    """Whether ``length`` is a number, or the length of an array that is not cut out of another one."""
    root: Any = length.only_variable
    if not isinstance(root, Length):
        return length.constant is not None
    return root.of.owner is None or not isinstance(root.of.owner.op, _CUTS)


def _sink(graph: FunctionGraph, condition: Variable, reader: Apply) -> Apply:
    """Replace ``reader`` by a conditional that computes it in both branches."""
    values: dict[bool, dict[Variable, Variable]] = {True: {}, False: {}}
    for node in graph.apply_nodes:
        if isinstance(node.op, IfElse) and node.inputs[0] is condition:
            for side, branch in zip((True, False), branches_of(node), strict=True):
                values[side].update(zip(node.outputs, branch, strict=True))
    is_alike = isinstance(reader.op, IfElse) and reader.inputs[0] is condition
    # Of another conditional on the same condition, only one branch is live on each side.
    read = branches_of(reader) if is_alike else (reader.inputs, reader.inputs)
    then, otherwise = [
        [_where(values[side], v) for v in part]
        for side, part in zip((True, False), read, strict=True)
    ]
    if not is_alike:
        then, otherwise = [
            reader.clone_with_new_inputs(part, strict=False).outputs for part in (then, otherwise)
        ]
    new: Apply = IfElse(len(then)).make_node(condition, *then, *otherwise)
    pairs = list(zip(reader.outputs, new.outputs, strict=True))
    graph.replace_all(pairs, import_missing=True, reason="sink_readers")
    return new


def _where(values: dict[Variable, Variable], v: Variable) -> Variable:
    """Specialize ``v`` to a branch with these ``values`` of the conditionals; an integer entirely."""
    if v in values or str(getattr(v.type, "dtype", "")).startswith(("int", "uint")):
        (v,) = replaced([v], values)
    return v
