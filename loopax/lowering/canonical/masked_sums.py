"""Sums of masked elements -> sums of all elements with zeros in place of the others; also their gradients.

    sum(x[:, m, 1:], axis)  ->  sum(switch(m, x[:, :, 1:], 0), axis)
    inc_subtensor(a[:, m], second(x[:, m], g))  ->  inc_subtensor(a[:, m], g)

Condition: the index is one mask and slices, and the sum runs over what the mask selects (`g` is the same at
all places), so that no shape depends on the number of elements. A mask of length 1, or on an axis of length
1, is left alone: an index is not broadcast, and a `Switch` would be. A mask whose length differs from its
axis raises in both forms.

Reason: in JAX a selection has a shape that depends on values. PyTensor has this rewrite for its JAX mode,
with ``switch(m, x, 0)`` for a mask of rows of a matrix too, which is wrong or raises:
``x[[True, False]].sum()`` of a 2 x 2 matrix is the sum of its first column there. `stabilize` runs
this one in its place.

In the literature: if-conversion of a selection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.base.upstream.pytensor import indices_from_subtensor
from loopax.facts.elementwise import is_elementwise
from loopax.facts.families import normalized


def masked_sums(graph: FunctionGraph) -> None:
    """Rewrite the sums of ``graph``, in place; its bodies are left to the caller."""
    for node in graph.toposort():
        new = None
        if isinstance(node.op, Sum):
            new = _sum_of_all(node)
        elif isinstance(node.op, AdvancedIncSubtensor):
            new = _without_selection(node)
        if new is not None:
            graph.replace(node.outputs[0], new, reason="masked_sums", import_missing=True)


def _sum_of_all(node: Apply) -> Variable | None:
    op: Any = node.op
    read = node.inputs[0].owner
    if read is None or not isinstance(read.op, AdvancedSubtensor):
        return None
    x: Any = read.inputs[0]
    entries = list(indices_from_subtensor(read.inputs[1:], read.op.idx_list))
    axis = _axis_of_mask(entries)
    if axis is None:
        return None
    mask: Any = entries[axis]
    axes = range(axis, axis + mask.type.ndim)
    if any(
        (n == 1) != (m == 1)
        for n, m in zip(x.type.shape[axis : axes.stop], mask.type.shape, strict=True)
    ):
        return None
    summed = normalized(op.axis, node.inputs[0].type.ndim)
    if axis not in summed:
        return None
    whole = [*entries[:axis], *[slice(None)] * len(axes), *entries[axis + 1 :]]
    if any(e != slice(None) for e in whole):
        x = x[tuple(whole)]
    order = ["x"] * axis + list(range(len(axes))) + ["x"] * (x.type.ndim - axes.stop)
    kept = pt.switch(mask.dimshuffle(order), x, np.zeros((), dtype=x.type.dtype))
    more = len(axes) - 1
    over = [*axes, *(k + more if k > axis else k for k in summed if k != axis)]
    total = Sum(axis=tuple(sorted(over)), dtype=op.dtype, acc_dtype=op.acc_dtype)
    return total(kept)  # type: ignore[return-value]


def _without_selection(node: Apply) -> Variable | None:
    x, y, *index = node.inputs
    fill, op = y.owner, node.op
    if fill is None or not is_elementwise(fill, ps.Second):
        return None
    selected, value = fill.inputs
    read = selected.owner
    if read is None or not isinstance(read.op, AdvancedSubtensor):
        return None
    # The gradients of several reads are accumulated in one array, which need not be the one that is read.
    if read.inputs[1:] != index or read.op.idx_list != op.idx_list:
        return None
    axis = _axis_of_mask(list(indices_from_subtensor(index, op.idx_list)))
    if (
        axis is None
        or not value.type.broadcastable[axis]
        or x.type.ndim != read.inputs[0].type.ndim
    ):
        return None
    return op(x, value.astype(y.type.dtype), *index)


def _axis_of_mask(entries: list[Any]) -> int | None:
    """The axis of the one computed mask in an index that otherwise has only slices, else None."""
    others = [k for k, e in enumerate(entries) if not isinstance(e, slice)]
    if len(others) != 1 or isinstance(mask := entries[others[0]], Constant):
        return None
    return others[0] if mask is not None and mask.type.dtype == "bool" else None
