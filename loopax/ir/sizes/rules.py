"""What the ops say of dimensions, a rule for each class of them.

An op that has no rule says nothing: its dimensions are dimension variables of their own. A rule may be
registered wherever the op is known, beside its conversion to a backend say:

    @length_rule.register(Tile)
    def length_of_tile(op, dims, node, x, axis): ...

``dims`` is the `Dims` that asks. A rule reads its own node, and asks ``dims`` for all that is behind
it, so that the answer is dropped where something there changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from loopax.facts import Structure, facts_of
from loopax.ir.sizes.dim_expr import DimExpr

Interval = tuple[int, int]  # the least and the greatest that a value can be


@singledispatch
def length_rule(op: Any, dims: Any, node: Any, x: Any, axis: int) -> DimExpr | None:
    """The length along ``axis`` of ``x``, an output of ``node``; None where nobody can tell.

    Without a rule it is that of an input along which the axis runs, by the op's facts.
    """
    if x is not node.outputs[0] and facts_of(op).structure is not Structure.ELEMENTWISE:
        return None
    lengths = _lengths_along(op, dims, node, axis)
    constant = [n for n in lengths if n.constant is not None]
    return next(iter([*constant, *lengths]), None)


@singledispatch
def agreement_rule(op: Any, dims: Any, node: Any) -> Sequence[tuple[DimExpr, DimExpr]]:
    """Pairs of expressions that are equal, or ``node`` raises.

    Without a rule these are the lengths of the inputs along which one axis runs.
    """
    pairs: list[tuple[DimExpr, DimExpr]] = []
    for axis in range(getattr(node.outputs[0].type, "ndim", 0)):
        lengths = _lengths_along(op, dims, node, axis)
        pairs += [(lengths[0], n) for n in lengths[1:]]
    return pairs


def _lengths_along(op: Any, dims: Any, node: Any, axis: int) -> list[DimExpr]:
    """The lengths of the inputs of ``node`` along which ``axis`` of the output runs.

    A length that is not known to be 1 is not broadcast: all such inputs agree, or the op raises.
    """
    facts = facts_of(op)
    along = (facts.sizes or facts.axes)(node)
    if along is None:
        return []
    pairs = [(v, own[axis]) for v, own in zip(node.inputs, along, strict=True) if own]
    return [dims.length(v, k) for v, k in pairs if k is not None and v.type.shape[k] != 1]


@singledispatch
def value_rule(op: Any, dims: Any, node: Any) -> DimExpr | None:
    """The integer scalar that ``node`` makes; None where nobody can tell."""
    return None


@singledispatch
def arithmetic_rule(op: Any, dims: Any, inputs: Any) -> DimExpr | None:
    """What the scalar op ``op`` makes of integers where it does not wrap around; None as above."""
    return None


@singledispatch
def interval_rule(op: Any, node: Any, v: Any, value: Any, length: Any) -> Interval | None:
    """Between which integers ``v``, an output of ``node``, lies; None where nobody can tell.

    ``value(u)`` says the same of an input, ``length(u, axis)`` of how long an array is.
    """
    return None


@singledispatch
def interval_arithmetic(op: Any, *operands: Interval | None) -> Interval | None:
    """What the scalar op ``op`` makes of integers that lie there, if it does not wrap around."""
    return None


@singledispatch
def mask_rule(op: Any, node: Any) -> Sequence[Any]:
    """The masks of which ``node`` takes the true places: how many those are only a run tells."""
    return ()
