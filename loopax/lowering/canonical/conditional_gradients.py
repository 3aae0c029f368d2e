"""A gradient through both branches of a conditional -> the gradient of the chosen branch only.

    f'(ifelse(c, g, 0)) + h'(ifelse(c, 0, g))  ->  ifelse(c, f'(g), h'(g))

PyTensor's gradient of an ``ifelse`` goes through both of its branches, with a cotangent of zeros in the one
that is not taken. The rules of `fold_zeros` find the variables that are zero where the condition is true,
or where it is false. A sum of such terms becomes a conditional, and so does a single term where the linear
part of the graph ends; `if_else_to_cond`, which comes next, moves into each branch all that only it needs:
the values of the other branch too, where nobody else reads them.

Condition: as in `fold_zeros`, a product with a zero factor counts as zero. An op that is not known to be
linear stays outside, and runs for both.

In the literature: sparse conditional constant propagation, for the constant 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import CAReduce

from loopax.base.upstream.pytensor import IfElse
from loopax.facts.elementwise import is_elementwise
from loopax.ir.effects import Speculation, speculation
from loopax.ir.replace import replaced
from loopax.ir.sizes import Dims, Length, unconditional_dims_of
from loopax.lowering.bodies import map_bodies
from loopax.lowering.canonical.if_else_to_cond import has_if_else
from loopax.lowering.canonical.sink_readers import branches_of
from loopax.lowering.redundancy.fold_zeros import Zeros

# Cheap operations between a value of the conditional and the cotangent, which may be repeated.
_MOST = 64


def conditional_gradients(graph: FunctionGraph) -> None:
    """Run the pass on ``graph``, in place, and on its bodies."""
    map_bodies(graph, conditional_gradients, where=has_if_else)
    seen: set[Variable] = set()
    while True:  # terminates: each round handles a new condition
        conditions = [n.inputs[0] for n in graph.toposort() if isinstance(n.op, IfElse)]
        # Last condition first: of nested conditionals, this is the outermost.
        condition = next((c for c in reversed(dict.fromkeys(conditions)) if c not in seen), None)
        if condition is None:
            return
        seen.add(condition)
        _divide(graph, condition)


def _divide(graph: FunctionGraph, condition: Variable) -> None:
    """Make conditionals of variables that are zero where ``condition`` is true, or where it is false."""
    always = Zeros(lambda v: False)
    branches: dict[bool, dict[Variable, Variable]] = {True: {}, False: {}}
    known: dict[bool, set[Variable]] = {True: set(), False: set()}
    for node in graph.toposort():
        if not isinstance(node.op, IfElse) or node.inputs[0] is not condition:
            continue
        for side, operands in zip((True, False), branches_of(node), strict=True):
            branches[side].update(zip(node.outputs, operands, strict=True))
            pairs = zip(node.outputs, operands, strict=True)
            known[side].update(v for v, x in pairs if always(x))
    if not (known[True] or known[False]):
        return
    zeros = {side: Zeros(known[side].__contains__) for side in (True, False)}

    def is_zero(v: Variable, side: bool) -> bool:
        return v not in known[side] and zeros[side](v) and not always(v)

    for v in _leaving(graph, is_zero):
        sides = _terms(v, is_zero) or _alone(graph, v, is_zero)
        if sides is None:
            continue
        then, otherwise = [
            _in_branch(x, branches[side], known[not side] | known[side])
            for side, x in zip((True, False), sides, strict=True)
        ]
        new = IfElse(1)(condition, then, otherwise)
        graph.replace_all([(v, new)], import_missing=True, reason="conditional_gradients")


def _leaving(graph: FunctionGraph, is_zero: Callable[[Variable, bool], bool]) -> list[Any]:
    """Sums with a term that is zero in one branch, and zeros of one branch that no further zero reads."""
    leaving: dict[Variable, None] = {}
    for node in graph.toposort():
        for v in node.outputs:
            sides = [side for side in (True, False) if is_zero(v, side)]
            if len(sides) == 1 and not all(
                _goes_on(reader, sides[0], is_zero) for reader, _ in graph.clients[v]
            ):
                leaving[v] = None
            if not sides and _has_terms(node, is_zero):
                leaving[v] = None
    return list(leaving)


def _has_terms(node: Apply, is_zero: Callable[[Variable, bool], bool]) -> bool:
    both = [(x, side) for x in node.inputs for side in (True, False)]
    return is_elementwise(node, ps.Add) and any(is_zero(x, side) for x, side in both)


def _goes_on(reader: Apply, side: bool, is_zero: Callable[[Variable, bool], bool]) -> bool:
    """Whether ``reader`` makes another zero of a zero operand, or is a sum whose terms are examined."""
    outs: Sequence[Any] = getattr(reader, "outputs", ())  # none for an output of the graph
    return bool(outs) and (_has_terms(reader, is_zero) or any(is_zero(y, side) for y in outs))


def _terms(v: Variable, is_zero: Callable[[Variable, bool], bool]) -> tuple[Any, Any] | None:
    """The sum ``v`` where the condition is true, and where it is false, without the terms that are zero."""
    if not is_elementwise(v.owner, ps.Add) or any(is_zero(v, side) for side in (True, False)):
        return None
    sums = []
    for side in (True, False):
        left = [x for x in v.owner.inputs if not is_zero(x, side)]
        if not left or not _span(left, v):
            return None
        total: Any = left[0] if len(left) == 1 else v.owner.op(*left)
        sums.append(v.type.filter_variable(total.astype(v.type.dtype)))
    return sums[0], sums[1]


def _span(terms: Sequence[Variable], v: Variable) -> bool:
    """Whether the sum of ``terms`` has the shape of ``v``."""
    return all(
        any(x.type.shape[axis] != 1 for x in terms) or n == 1 for axis, n in enumerate(v.type.shape)
    )


def _alone(
    graph: FunctionGraph, v: Variable, is_zero: Callable[[Variable, bool], bool]
) -> tuple[Any, Any] | None:
    """The pair ``v`` and zeros, or zeros and ``v``; None where its shape is not known without it."""
    dims = unconditional_dims_of(graph)
    lengths = [_of_inputs(dims, v, axis) for axis in range(v.type.ndim)]
    if None in lengths:
        return None
    zero = v.type.filter_variable(pt.zeros([dims.variable(n) for n in lengths], v.type.dtype))
    return (zero, v) if is_zero(v, True) else (v, zero)


def _of_inputs(dims: Dims, v: Variable, axis: int) -> Any:
    """The length of ``v`` in terms of graph inputs alone, or None."""
    stack: list[Any] = [v]
    seen: set[Any] = set()
    while stack:
        x = stack.pop()
        length = dims.length(x, axis)
        roots = [root.of if isinstance(root, Length) else root for root in length.roots()]
        if all(getattr(root, "owner", None) is None for root in roots):
            return length
        if is_elementwise(x.owner):
            # Every input not declared broadcastable has this length; any of them may have a known one.
            new = {y for y in x.owner.inputs if y.type.shape[axis] != 1} - seen
            seen |= new
            stack += new
    return None


def _in_branch(x: Variable, values: dict[Variable, Variable], cotangents: set[Variable]) -> Any:
    """Specialize ``x`` to these ``values`` of the conditionals; non-cotangents only if that is cheap."""
    before = set(toposort([x]))
    (x,) = replaced([x], {v: values[v] for v in cotangents})
    others = {v: y for v, y in values.items() if v not in cotangents}
    reached, again = set(others), []
    for node in toposort([x], blockers=list(others)):
        if any(v in reached for v in node.inputs):
            reached.update(node.outputs)
            again += [node] if node in before else []
    if len(again) > _MOST or not all(map(_is_cheap, again)):
        return x
    (x,) = replaced([x], others)
    return x


def _is_cheap(node: Apply) -> bool:
    return (
        isinstance(node.op, CAReduce)
        or is_elementwise(node)
        or speculation(node) <= Speculation.CHEAP
    )
