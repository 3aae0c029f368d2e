"""The degree of each value: how the value changes when a variable is shifted by a number.

    ("add", d)   f(m + c) = f(m) + d c        sums and logarithms
    ("mul", d)   f(m + c) = exp(d c) f(m)     exponentials

`cancels` says whether all outputs of a graph are of degree 0, or depend on ``m`` through comparisons alone:
no derivative passes through ``m`` then. Where ``m`` is an array, each element has a shift of its own, and
``axes`` says which axes of a value correspond to axes of ``m``; a sum along one of them mixes the shifts.

(`extensions/parallel/loops/homogeneous.py` asks it of all states of a loop, read off its jaxpr.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.facts.elementwise import scalar_op_of
from loopax.facts.families import normalized
from loopax.lowering.analysis.shifted_terms import number_in

_MOST = 60  # most dependents of a variable that are examined


class _Unknown(Exception):
    """Raised where an op has no rule, or its operands have no common degree."""


@dataclass(frozen=True)
class _Degree:
    kind: str  # "add" or "mul"
    d: float
    axes: tuple[int | None, ...]  # for each axis of the variable; None for an axis of length 1


def cancels(graph: FunctionGraph, m: Variable) -> bool:
    """Whether ``graph`` reads ``m``, and every derivative with respect to ``m`` is zero."""
    axes = tuple(None if one else k for k, one in enumerate(m.type.broadcastable))
    degrees: dict[Variable, _Degree] = {m: _Degree("add", 1.0, axes)}
    nodes = _following(graph, m)
    if nodes is None:
        return False
    passed = False
    try:
        for node in nodes:
            if isinstance(node.op, DisconnectedGrad | ZeroGrad):
                continue
            d = _degree(node, [degrees.get(v) for v in node.inputs])
            if d is None:
                continue
            passed = True
            if d.d != 0.0:
                degrees[node.outputs[0]] = d
    except _Unknown:
        return False
    return passed and not any(v in degrees for v in graph.outputs)


def _following(graph: FunctionGraph, m: Variable) -> list[Apply] | None:
    """The nodes that depend on ``m``, in topological order; None if there are too many."""
    nodes: set[Apply] = set()
    stack = [m]
    while stack:
        for node, _ in graph.clients.get(stack.pop(), ()):
            if node not in nodes and node in graph.apply_nodes:
                nodes.add(node)
                stack += node.outputs
                if len(nodes) > _MOST:
                    return None
    border = [v for node in nodes for v in node.inputs if v.owner not in nodes]
    return list(toposort([v for node in nodes for v in node.outputs], blockers=border))


Degrees = Sequence[_Degree | None]


def _degree(node: Apply, degrees: Degrees) -> _Degree | None:
    """The degree of the output of ``node``; None if the output does not change."""
    if all(d is None for d in degrees):
        return None
    op = node.op
    if (function := scalar_op_of(op)) is not None:
        out: Any = node.outputs[0]
        if not out.type.dtype.startswith("float"):
            return None  # neither a comparison nor a conversion has a derivative
        rule = _ELEMENTWISE.get(type(function))
        if rule is None:
            raise _Unknown
        return rule(node, degrees)
    for cls, rule in _RULES.items():
        if isinstance(op, cls):
            return rule(node, degrees)
    raise _Unknown


# -- elementwise -------------------------------------------------------------------------------------


def _all_plus(k: int) -> float:
    return 1.0


def _first_plus(k: int) -> float:
    return 1.0 if k == 0 else -1.0


def _common(degrees: Degrees) -> _Degree:
    """The kind and the axes that the degrees have in common."""
    changing = [d for d in degrees if d is not None]
    first = changing[0]
    if any((d.kind, d.axes) != (first.kind, first.axes) for d in changing):
        raise _Unknown
    return first


def _same(node: Apply, degrees: Degrees) -> _Degree:
    """The one degree that all operands share."""
    first = _common(degrees)
    if any(d is None or abs(d.d - first.d) > _rounding(node) * abs(first.d) for d in degrees):
        raise _Unknown
    return first


def _added(signs: Callable[[int], float]) -> Callable[[Apply, Degrees], _Degree]:
    def rule(node: Apply, degrees: Degrees) -> _Degree:
        first = _common(degrees)
        if first.kind == "mul":
            return _same(node, degrees)
        return replace(first, d=_total(node, degrees, signs))

    return rule


def _total(node: Apply, degrees: Degrees, signs: Callable[[int], float]) -> float:
    """The sum of the degrees; 0 where they cancel up to the rounding of the constants behind them."""
    each = [signs(k) * d.d for k, d in enumerate(degrees) if d is not None]
    return 0.0 if abs(sum(each)) <= _rounding(node) * max(map(abs, each)) else sum(each)


def _rounding(node: Apply) -> float:
    out: Any = node.outputs[0]
    return 4.0 * float(np.finfo(out.type.dtype).eps)


def _multiplied(signs: Callable[[int], float]) -> Callable[[Apply, Degrees], _Degree]:
    def rule(node: Apply, degrees: Degrees) -> _Degree:
        first = _common(degrees)
        if first.kind == "mul":
            return replace(first, d=_total(node, degrees, signs))
        numbers = [number_in(v) for v, d in zip(node.inputs, degrees, strict=True) if d is None]
        (k,) = [k for k, d in enumerate(degrees) if d is not None][:1]
        alone = len(numbers) + 1 == len(degrees) and signs(k) > 0
        if not alone or any(c is None or c == 0.0 for c in numbers):
            raise _Unknown
        c = float(np.prod([c for c in numbers if c is not None]))
        return replace(first, d=first.d * c if signs(len(degrees) - 1) > 0 else first.d / c)

    return rule


def _power(node: Apply, degrees: Degrees) -> _Degree:
    base, c = degrees[0], number_in(node.inputs[1])
    if base is None or base.kind != "mul" or c is None:
        raise _Unknown
    return replace(base, d=base.d * c)


def _from_to(kind: str, new: str, factor: float = 1.0) -> Callable[[Apply, Degrees], _Degree]:
    def rule(node: Apply, degrees: Degrees) -> _Degree:
        (d,) = degrees
        if d is None or d.kind != kind:
            raise _Unknown
        return replace(d, kind=new, d=factor * d.d)

    return rule


def _chosen(node: Apply, degrees: Degrees) -> _Degree | None:
    """The degree of a choice between operands of one degree; the condition has no derivative."""
    if degrees[1] is None and degrees[2] is None:
        return None
    return _same(node, degrees[1:])


def _negative(node: Apply, degrees: Degrees) -> _Degree:
    first = _common(degrees)
    return first if first.kind == "mul" else replace(first, d=-first.d)


_ELEMENTWISE: dict[type, Callable[[Apply, Degrees], _Degree | None]] = {
    ps.Add: _added(_all_plus),
    ps.Sub: _added(_first_plus),
    ps.Mul: _multiplied(_all_plus),
    ps.TrueDiv: _multiplied(_first_plus),
    ps.Neg: _negative,
    ps.Exp: _from_to("add", "mul"),
    ps.Log: _from_to("mul", "add"),
    ps.Reciprocal: _from_to("mul", "mul", -1.0),
    ps.Sqr: _from_to("mul", "mul", 2.0),
    ps.Sqrt: _from_to("mul", "mul", 0.5),
    ps.Pow: _power,
    ps.Abs: _from_to("mul", "mul"),
    ps.ScalarMaximum: _same,
    ps.ScalarMinimum: _same,
    ps.Switch: _chosen,
    ps.Second: lambda node, degrees: degrees[1],
    ps.Cast: _same,
    ps.Identity: _same,
}


# -- of arrays ---------------------------------------------------------------------------------------


def _reduced(node: Apply, degrees: Degrees) -> _Degree:
    op: Any = node.op
    (d,) = degrees
    assert d is not None
    ndim = node.inputs[0].type.ndim
    along = normalized(op.axis, ndim)
    extreme = isinstance(op.scalar_op, ps.ScalarMaximum | ps.ScalarMinimum)
    if not extreme and not (isinstance(op.scalar_op, ps.Add) and d.kind == "mul"):
        raise _Unknown
    if any(a in along for a in d.axes if a is not None):
        raise _Unknown
    left = [a for a in range(ndim) if a not in along]
    return replace(d, axes=tuple(None if a is None else left.index(a) for a in d.axes))


def _laid_out(node: Apply, degrees: Degrees) -> _Degree:
    op: Any = node.op
    (d,) = degrees
    assert d is not None
    order = list(op.new_order)
    return replace(d, axes=tuple(None if a is None else order.index(a) for a in d.axes))


def _normalised(node: Apply, degrees: Degrees) -> _Degree | None:
    op: Any = node.op
    (d,) = degrees
    assert d is not None
    ndim = node.inputs[0].type.ndim
    along = normalized(op.axis, ndim)
    if d.kind != "add" or any(a in along for a in d.axes if a is not None):
        raise _Unknown
    return None


def _product(node: Apply, degrees: Degrees) -> _Degree:
    """The degree of a matrix product, whose operands may only be exponentials."""
    x, y = degrees
    a, b = (v.type.ndim for v in node.inputs)
    for d, contracted in (x, a - 1), (y, max(b - 2, 0)):
        if d is not None and (d.kind != "mul" or contracted in d.axes):
            raise _Unknown
    if y is not None:
        # The rows of the second operand are contracted; its columns follow the remaining axes of the first.
        y = replace(y, axes=tuple(None if k is None else a - 1 for k in y.axes))
    both = [d for d in (x, y) if d is not None]
    if len({d.axes for d in both}) > 1:
        raise _Unknown
    return replace(both[0], d=_total(node, both, _all_plus))


_RULES: dict[Any, Callable[[Apply, Degrees], _Degree | None]] = {
    CAReduce: _reduced,
    DimShuffle: _laid_out,
    Softmax: _normalised,
    LogSoftmax: _normalised,
    Dot: _product,
    CheckAndRaise: lambda node, degrees: degrees[0],
}
