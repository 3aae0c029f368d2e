"""Records of ops that read or write at indices."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Constant
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from loopax.base.upstream.pytensor import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.facts.accesses import access_of
from loopax.facts.families import in_first, leading_axes, ndim_of
from loopax.facts.record import Axes, Errors, Groups, OpFacts, Structure, Work, register


def _index_errors(node: Apply) -> Errors:
    errors, access = Errors.NONE, access_of(node)
    for n, entry in zip(access.array.type.shape, access.index, strict=False):
        if isinstance(entry, slice):
            step = entry.step
            if step is not None and not (isinstance(step, Constant) and int(step.data)):
                errors |= Errors.VALUE
        elif n is None or not isinstance(entry, Constant) or not -n <= int(entry.data) < n:
            errors |= Errors.INDEX
    return errors


def _bounds(node: Apply) -> list[Any]:
    slices = [k for k in access_of(node).index if isinstance(k, slice)]
    return [v for k in slices for v in (k.start, k.stop) if v is not None]


def _axes(node: Apply) -> Axes:
    """The axes of a read: whole slices, and axes behind the index, keep their axis."""
    index, own = access_of(node).index, []
    for k in range(ndim_of(node.inputs[0])):
        entry = index[k] if k < len(index) else slice(None)
        if isinstance(entry, slice):
            own.append(k if entry == slice(None) else None)
    return (own, *((None,) * len(own) for _ in node.inputs[1:]))


def _in_array_and_value(node: Apply) -> Groups:
    return (frozenset({0, 1}),)


def _read_behind(node: Apply, n: int) -> Any:
    """A read with ``n`` more whole slices in front, or with as many fewer; None if that is impossible."""
    op: Any = node.op
    whole = (slice(None),) * abs(n)
    if n < 0 and op.idx_list[:-n] != whole:
        return None
    return Subtensor(whole + op.idx_list if n > 0 else op.idx_list[-n:])


register(
    Subtensor,
    OpFacts(
        structure=Structure.MOVES,
        work=Work.ENTRY,
        errors=_index_errors,
        lengths=_bounds,
        axes=_axes,
        behind=_read_behind,
        linear=in_first,
    ),
)
register(
    IncSubtensor,
    OpFacts(
        structure=Structure.MOVES,
        errors=lambda node: Errors.SHAPE | _index_errors(node),
        lengths=_bounds,
        sizes=leading_axes(0),
        linear=_in_array_and_value,
    ),
)
for _class in (AdvancedSubtensor, AdvancedSubtensor1):
    register(_class, OpFacts(structure=Structure.MOVES, linear=in_first))
for _class in (AdvancedIncSubtensor, AdvancedIncSubtensor1):
    register(
        _class,
        OpFacts(structure=Structure.MOVES, sizes=leading_axes(0), linear=_in_array_and_value),
    )
