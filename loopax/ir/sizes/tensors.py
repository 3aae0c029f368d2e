"""Rules for the length of a tensor along an axis, by the op that computes it."""

from __future__ import annotations

from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Eye, Join, Split
from pytensor.tensor.extra_ops import SearchsortedOp
from pytensor.tensor.linalg.constructors import BlockDiagonal
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor

from loopax.base.upstream.pytensor import (
    AdvancedSubtensor1,
    axis_of,
    indices_from_subtensor,
    joined_by,
)
from loopax.facts.accesses import access_of, read_of
from loopax.ir.ops.rows import FitRows, KeepRows
from loopax.ir.sizes.analysis import Dims, is_integer
from loopax.ir.sizes.dim_expr import DimExpr, total
from loopax.ir.sizes.rules import agreement_rule, length_rule
from loopax.ir.sizes.scalars import element
from loopax.ir.sizes.slices import window_of

length_rule.register(CheckAndRaise)(  # also for lists
    lambda op, dims, node, x, axis: dims.length(node.inputs[0], axis)
)


@agreement_rule.register(SpecifyShape)
def _specified(op: SpecifyShape, dims: Dims, node: Apply) -> list[tuple[DimExpr, DimExpr]]:
    x, *lengths = node.inputs
    specified = [(k, n) for k, n in enumerate(lengths) if hasattr(n.type, "dtype")]
    return [(dims.length(x, k), dims.value(n)) for k, n in specified]


@agreement_rule.register(Dot)
def _summed_over(op: Dot, dims: Dims, node: Apply) -> list[tuple[DimExpr, DimExpr]]:
    a, b = node.inputs
    return [(dims.length(a, a.type.ndim - 1), dims.length(b, 0))]


# -- lengths that are inputs -------------------------------------------------------------------------


length_rule.register(Alloc)(lambda op, dims, node, x, axis: dims.value(node.inputs[1 + axis]))
length_rule.register(AllocEmpty | Eye)(
    lambda op, dims, node, x, axis: dims.value(node.inputs[axis])
)


@length_rule.register(ARange)
def _counted(op: ARange, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    if not all(map(is_integer, node.inputs)):
        return None
    start, stop, step = map(dims.value, node.inputs)
    return dims.clipped(True, stop - start, DimExpr()) if step.constant == 1 else None


@length_rule.register(FitRows | KeepRows)  # a negative length counts as 0
def _fitted(op: Op, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr:
    if axis:
        return dims.length(node.inputs[0], axis)
    return dims.clipped(True, dims.value(node.inputs[-1]), DimExpr())


@length_rule.register(SortOp | ArgSortOp)
def _sorted(op: Op, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    is_flat = x.type.ndim != node.inputs[0].type.ndim
    return None if is_flat else dims.length(node.inputs[0], axis)


length_rule.register(SearchsortedOp)(
    lambda op, dims, node, x, axis: dims.length(node.inputs[1], axis)
)


# -- parts and wholes --------------------------------------------------------------------------------


@length_rule.register(Subtensor)
def _read_length(op: Subtensor, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    access = access_of(node)
    source_axis = axis
    for k, entry in enumerate(access.index):
        if not isinstance(entry, slice):
            source_axis += 1
        elif k == source_axis:
            window = window_of(dims, access.array, entry, k)
            return None if window is None else window.count
    return dims.length(access.array, source_axis)


@agreement_rule.register(IncSubtensor)
def _written(op: IncSubtensor, dims: Dims, node: Apply) -> list[tuple[DimExpr, DimExpr]]:
    array, y = node.inputs[:2]
    index = access_of(node).index
    axes = [k for k in range(array.type.ndim) if k >= len(index) or isinstance(index[k], slice)]
    y_axes = axes[len(axes) - y.type.ndim :]
    return [
        (dims.length(y, y_axis), dims.length(array, k))
        for y_axis, k in enumerate(y_axes)
        if y.type.shape[y_axis] != 1 and (k >= len(index) or index[k] == slice(None))
    ]


@length_rule.register(AdvancedSubtensor | AdvancedSubtensor1)
def _gathered(op: Any, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    """An axis of the one array of positions, or an axis that the read leaves whole."""
    array, *entries = node.inputs
    index = indices_from_subtensor(entries, getattr(op, "idx_list", (0,)))
    places = [k for k, entry in enumerate(index) if entry != slice(None)]
    if len(places) != 1:
        return None
    (k,) = places
    positions: Any = index[k]
    if isinstance(positions, slice) or positions.type.dtype == "bool":
        return None
    if k <= axis < k + positions.type.ndim:
        return dims.length(positions, axis - k)
    return dims.length(array, axis if axis < k else axis - positions.type.ndim + 1)


@length_rule.register(BlockDiagonal)
def _of_blocks(op: BlockDiagonal, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr:
    return total(dims.length(v, axis) for v in node.inputs)


@length_rule.register(Join)
def _joined(op: Join, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    if axis_of(node) != axis:
        return None
    alone: dict[_Half, list[DimExpr]] = {}
    lengths = []
    for piece in joined_by(op, node.inputs):
        length, half = dims.length(piece, axis), _half_of(dims, piece, axis)
        if half is not None and alone.get(half.other):
            length = dims.length(half.array, axis) - alone[half.other].pop()
        elif half is not None:
            alone.setdefault(half, []).append(length)
        lengths.append(length)
    return total(lengths)


class _Half(NamedTuple):
    """A slice ``array[bound:]`` or ``array[:bound]``; the two together have all rows for any ``bound``."""

    array: Any
    bound: DimExpr
    is_end: bool

    @property
    def other(self) -> _Half:
        return self._replace(is_end=not self.is_end)


def _half_of(dims: Dims, v: Variable, axis: int) -> _Half | None:
    """The half that ``v`` is along ``axis``, if it is whole along all other axes; else None."""
    if (read := read_of(v.owner)) is None or axis >= len(read.index):
        return None
    index = read.index
    if not all(isinstance(entry, slice) for entry in index):
        return None
    if any(entry != slice(None) for k, entry in enumerate(index) if k != axis):
        return None
    start, stop, step = index[axis].start, index[axis].stop, index[axis].step
    if step is not None and dims.value(step) != DimExpr(offset=1):
        return None
    if start is not None and dims.value(start) == DimExpr():
        start = None
    if (start is None) == (stop is None):
        return None
    bound = dims.value(stop if start is None else start)
    return _Half(read.array, bound, is_end=start is not None)


@length_rule.register(Split)
def _split(op: Split, dims: Dims, node: Apply, x: Variable, axis: int) -> DimExpr | None:
    if axis or axis_of(node) != 0:
        return None
    return element(dims, node.inputs[-1], node.outputs.index(x))
