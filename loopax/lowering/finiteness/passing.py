"""Propagation of nonfinite values, to skip checks that another check implies.

In ``h = w + a * r**2 + b * h`` the last value is nonfinite if any value is, and so is ``log(h).sum()``. To
check one of these covers every step, and costs nothing. An op *passes on* an input if a nonfinite value of
that input never gives a finite output, whatever the other inputs are. Sums and products do; ``exp`` does
not (``exp(-inf)`` is 0), nor does a quotient pass on its divisor, nor does a selection.

Matrix products do in principle, but not in every BLAS: some skip zeros. A broadcast does not along an axis
that may have no entries. Nor does an operation that a rewrite may cancel: ``x - x`` is 0 to PyTensor,
``x / x`` is 1, and a product with a constant zero is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.type import DenseTensorType

from loopax.facts.axes import unshuffled
from loopax.facts.constants import constant_value
from loopax.facts.elementwise import scalar_op_of

# What PyTensor flattens to cancel terms, and factors.
_SUM = (ps.Add, ps.Sub, ps.Neg)
_PRODUCT = (ps.Mul, ps.TrueDiv, ps.Reciprocal, ps.Neg, ps.Pow, ps.Sqr, ps.Sqrt)
# What passes on its only input. A logarithm is minus infinity or nan where its argument is not above 0, and
# infinite or nan where that is not finite.
_FIRST = (
    *(ps.TrueDiv, ps.Neg, ps.Sqr, ps.Sqrt, ps.Abs, ps.Identity),
    *(ps.Log, ps.Log2, ps.Log10, ps.Log1p),
    *(ps.Sin, ps.Cos, ps.Tan, ps.Sinh, ps.Cosh),
)
_SUMS = (ps.Add, ps.Mul)


def may_be_infinite(v: Variable) -> bool:
    """Whether ``v`` is a variable, not a constant, of a type whose values may be nan or infinite."""
    t: Any = v.type
    is_float = isinstance(t, DenseTensorType) and t.dtype.startswith(("float", "complex"))
    return is_float and not isinstance(v, Constant)


def passed_on(node: Apply) -> list[Variable]:
    """The inputs of ``node`` whose nonfinite values make its output nonfinite."""
    op: Any = node.op
    kept: Sequence[Variable]
    if isinstance(op, DimShuffle):
        kept = node.inputs if op.is_expand_dims or not op.drop else []
    elif isinstance(op, Reshape | SpecifyShape):
        kept = node.inputs[:1]
    elif isinstance(op, CAReduce):
        kept = node.inputs if isinstance(op.scalar_op, _SUMS) else []
    else:
        kept = _by_function(scalar_op_of(op), node)
        (out,) = node.outputs[:1]
        kept = [v for v in kept if v.type.broadcastable == out.type.broadcastable]
    return [v for v in kept if may_be_infinite(v) and may_be_infinite(node.outputs[0])]


def closure(wanted: Iterable[Variable], nodes: Sequence[Apply]) -> set[Variable]:
    """Extend ``wanted`` by all values that make one of them nonfinite, through the sorted ``nodes``."""
    reached = set(wanted)
    for node in reversed(nodes):
        if len(node.outputs) == 1 and node.outputs[0] in reached:
            reached.update(passed_on(node))
    return reached


def _by_function(function: Callable[..., Any], node: Apply) -> Sequence[Variable]:
    inputs = node.inputs
    match function:
        case ps.Add() | ps.Sub():
            return [] if _may_cancel(inputs, _SUM) else inputs
        case ps.Mul() | ps.TrueDiv():
            if _may_cancel(inputs, _PRODUCT) or any(map(_may_be_constant_zero, inputs)):
                return []
            return inputs if isinstance(function, ps.Mul) else inputs[:1]
        case ps.Pow():
            return inputs[:1] if _is_positive(inputs[1]) else []
        case ps.Cast():
            return inputs
    return inputs[:1] if isinstance(function, _FIRST) else []


def _may_cancel(terms: Sequence[Variable], through: tuple[type, ...]) -> bool:
    """Whether two of ``terms``, of a sum or of a product, share a part."""
    parts = [_parts(v, through) for v in terms]
    return len(set().union(*parts)) < sum(map(len, parts))


def _parts(v: Variable, through: tuple[type, ...]) -> set[Any]:
    stack, parts = [v], set()
    while stack:
        part = stack.pop()
        if isinstance(part, Constant):
            continue
        function = None if part.owner is None else scalar_op_of(part.owner.op)
        if isinstance(function, through):
            stack += part.owner.inputs
        else:
            parts.add(_Alike(part))
    return parts


class _Alike:
    """A variable that compares equal to another one with an equal computation."""

    def __init__(self, v: Variable) -> None:
        self._v = v

    def __hash__(self) -> int:
        return hash(self._v.owner.op) if self._v.owner is not None else hash(self._v)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and equal_computations([self._v], [other._v])


def _may_be_constant_zero(v: Variable) -> bool:
    value = constant_value(v)
    if value is None:
        return isinstance(v, Constant) and not np.all(np.asarray(v.data) != 0)
    return not value != 0


def _is_positive(v: Variable) -> bool:
    v = unshuffled(v)
    return isinstance(v, Constant) and bool(np.all(np.asarray(v.data) > 0))
