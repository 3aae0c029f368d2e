"""Rules for the dimensions of ops, one for each class.

The dimensions of an op without a rule are dimension variables. A rule may be registered in any file,
for example beside the op's conversion to a backend:

    @length_rule.register(Tile)
    def length_of_tile(op, dims, node, x, axis): ...

``dims`` is the `Dims` that applies the rule. A rule reads its own node, and asks ``dims`` for all of
its ancestors, so that the answer is dropped when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce, singledispatch
from typing import Any, Protocol

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from loopax.facts import Structure, facts_of
from loopax.ir.matrices import sources_of_length
from loopax.ir.sizes.dim_expr import DimExpr

Interval = tuple[int, int]  # the least and the greatest possible value
OfValue = Callable[[Variable], Interval | None]
OfLength = Callable[[Variable, int], Interval | None]


class SizeAnalysis(Protocol):
    """The questions that a rule may ask the `Dims` that applies it."""

    def value(self, v: Variable) -> DimExpr: ...

    def length(self, x: Variable, axis: int = 0) -> DimExpr: ...

    def clipped(self, largest: bool, a: DimExpr, b: DimExpr) -> DimExpr: ...


@singledispatch
def length_rule(op: Op, dims: SizeAnalysis, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    """The length along ``axis`` of ``x``, an output of ``node``; None where it is not known.

    Without a rule it is the length of an input along that axis, according to the op's signature or facts.
    """
    if by_signature := [dims.length(*source) for source in sources_of_length(x, axis)]:
        return reduce(partial(dims.clipped, False), by_signature)
    if x is not node.outputs[0] and facts_of(op).structure is not Structure.ELEMENTWISE:
        return None
    lengths = _lengths_along(op, dims, node, axis)
    constant = [n for n in lengths if n.constant is not None]
    return next(iter([*constant, *lengths]), None)


@singledispatch
def agreement_rule(op: Op, dims: SizeAnalysis, node: Apply) -> Sequence[tuple[DimExpr, DimExpr]]:
    """Pairs of expressions that are equal unless ``node`` raises.

    Without a rule these are the lengths of inputs along one axis of the output.
    """
    pairs: list[tuple[DimExpr, DimExpr]] = []
    for axis in range(getattr(node.outputs[0].type, "ndim", 0)):
        lengths = _lengths_along(op, dims, node, axis)
        pairs += [(lengths[0], n) for n in lengths[1:]]
    return pairs


def _lengths_along(op: Op, dims: SizeAnalysis, node: Apply, axis: int) -> list[DimExpr]:
    """The lengths of the inputs of ``node`` along ``axis`` of the output.

    An axis whose length is not static 1 is not broadcast: all such inputs agree, or the op raises.
    """
    facts = facts_of(op)
    along = (facts.sizes or facts.axes)(node)
    if along is None:
        return []
    pairs = [
        (v, input_axes[axis])
        for v, input_axes in zip(node.inputs, along, strict=True)
        if input_axes
    ]
    return [dims.length(v, k) for v, k in pairs if k is not None and v.type.shape[k] != 1]


@singledispatch
def value_rule(op: Op, dims: SizeAnalysis, node: Apply) -> DimExpr | None:
    """The integer scalar that ``node`` computes; None where it is not known."""
    return None


@singledispatch
def arithmetic_rule(op: Op, dims: SizeAnalysis, inputs: Sequence[Variable]) -> DimExpr | None:
    """The result of the scalar op ``op`` for integers, without wrapping around; None if unknown."""
    return None


@singledispatch
def interval_rule(
    op: Op, node: Apply, v: Variable, value: OfValue, length: OfLength
) -> Interval | None:
    """The interval of ``v``, an output of ``node``; None where it is not known.

    ``value(u)`` returns the interval of an input, ``length(u, axis)`` the interval of a length.
    """
    return None


@singledispatch
def interval_arithmetic(op: Op, *operands: Interval | None) -> Interval | None:
    """The interval of the scalar op ``op`` for operands in these intervals, without wrapping around."""
    return None


@singledispatch
def mask_rule(op: Op, node: Apply) -> Sequence[Any]:
    """The masks whose true elements ``node`` selects; their number is known only at run time."""
    return ()
