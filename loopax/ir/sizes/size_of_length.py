"""The `Size` that a tensor's length along an axis is, by the op that made it."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, ARange, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from loopax.ir import Scan
from loopax.ir.compat import joined_rows
from loopax.ir.rows import FitRows, KeepRows
from loopax.ir.sizes.size import Size, total
from loopax.ir.sizes.size_of_value import element, is_integer
from loopax.ir.sizes.size_questions import SizeQuestions


def length_of(sizes: SizeQuestions, x: Any, axis: int) -> Size | None:
    if isinstance(x, Constant):
        return Size(offset=len(x.data) if axis == 0 else x.data.shape[axis])
    node = x.owner
    if node is None:
        return None
    op: Any = node.op
    given = node.inputs
    if isinstance(op, Scan):
        return _of_loop(sizes, node, node.outputs.index(x), axis)
    if isinstance(op, Elemwise):
        return _of_elemwise(sizes, given, axis)
    if isinstance(op, Alloc):
        dim = given[1 + axis]
        return sizes.of(dim)
    if isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot):
        return _of_product(sizes, given[0], given[1], axis, x.type.ndim)
    if isinstance(op, IncSubtensor | CheckAndRaise | SpecifyShape):
        return sizes.length(given[0], axis)
    if isinstance(op, DimShuffle):
        place = op.new_order[axis]
        return Size(offset=1) if place == "x" else sizes.length(given[0], place)
    if isinstance(op, CAReduce) and op.axis is not None:
        kept = [k for k in range(given[0].type.ndim) if k not in op.axis]
        return sizes.length(given[0], kept[axis])
    if isinstance(op, FitRows | KeepRows):
        if axis:
            return sizes.length(given[0], axis)
        return sizes.clipped(
            True, sizes.of(given[-1]), Size()
        )  # FitRows takes a negative one for 0
    if isinstance(op, Subtensor):
        return _of_slice(sizes, node, axis)
    if isinstance(op, Join) and axis == 0:
        pieces = joined_rows(node)
        return None if pieces is None else total(sizes.length(p) for p in pieces)
    if isinstance(op, Split) and axis == 0:
        return _of_split(sizes, node, x)
    if isinstance(op, ARange) and all(map(is_integer, given)):
        start, stop, step = map(sizes.of, given)
        if step.constant == 1:
            return sizes.clipped(True, stop - start, Size())
    return None


def _of_loop(sizes: SizeQuestions, node: Any, at: int, axis: int) -> Size | None:
    if axis == 0 and at >= node.op.n_states:
        return _rows_made(sizes, node)
    if not hasattr(node.outputs[at].type, "ndim"):
        return None
    return sizes.of_loop(node).of(at, axis)


def _rows_made(sizes: SizeQuestions, node: Any) -> Size:
    """The length of the traces of a loop: the steps that it takes."""
    if not node.op.stops:
        return sizes.steps(node)
    n_done = node.outputs[-2]
    sizes.learn(Size(frozenset([(n_done, 1)])), 0)
    return Size(frozenset([(n_done, 1)]))


def _of_product(sizes: SizeQuestions, a: Any, b: Any, axis: int, ndim: int) -> Size | None:
    if max(a.type.ndim, b.type.ndim) > 2:
        return None
    rows = axis == 0 and a.type.ndim == 2
    return sizes.length(a, 0) if rows else sizes.length(b, b.type.ndim - 1) if ndim else None


def _of_elemwise(sizes: SizeQuestions, given: Any, axis: int) -> Size | None:
    # A length that is not known to be 1 is not broadcast: all such inputs agree, or the op raises.
    lengths = [sizes.length(v, axis) for v in given if v.type.shape[axis] != 1]
    constant = [n for n in lengths if n.constant is not None]
    return next(iter([*constant, *lengths]), None)


def _of_slice(sizes: SizeQuestions, node: Any, axis: int) -> Size | None:
    op: Any = node.op
    index = indices_from_subtensor(node.inputs[1:], op.idx_list)
    x, at = node.inputs[0], axis
    for k, entry in enumerate(index):
        if not isinstance(entry, slice):
            at += 1
        elif k == at:
            window = sizes.window(x, entry, k)
            return None if window is None else window[1]
    return sizes.length(x, at)


def _of_split(sizes: SizeQuestions, node: Any, x: Any) -> Size | None:
    op: Any = node.op
    axis = getattr(op, "axis", None)
    given = node.inputs
    if axis is None and isinstance(given[1], Constant):
        axis = int(given[1].data)
    return element(sizes, given[-1], node.outputs.index(x)) if axis == 0 else None
