"""The outputs of a node over a batch, by loopax's own rules where PyTensor would loop over the rows.

    x.shape        of a batch of x          ->  the lengths that all rows share
    concatenate    of a batch and an array  ->  concatenate, with the array repeated
    set_subtensor  at a shared index        ->  one write to all rows
    x.reshape(-1)  of a batch without rows  ->  the length that the other axes leave

All other ops are batched as PyTensor does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce, singledispatch
from operator import mul
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.variable import TensorVariable

from loopax.base.upstream.pytensor import (
    axis_of,
    indices_from_subtensor,
    joined_by,
    vectorize_rules,
)
from loopax.facts import Structure, facts_of
from loopax.facts.axes import shuffled
from loopax.facts.shapes import entries_of
from loopax.ir.effects import is_open
from loopax.ir.replace import applied_to
from loopax.ir.shapes import filled, lengths


def batched_outputs(node: Apply, inputs: Sequence[Variable]) -> list[Any]:
    """The outputs of ``node`` at ``inputs``, some of which have additional leading axes.

    An output that all rows share has no such axes.
    """
    if not any(map(_added_axes, node.inputs, inputs)):
        return list(applied_to(node, inputs).outputs)
    outputs = _own_outputs(node.op, node, inputs)
    if outputs is None:
        if any(isinstance(v.type, SparseTensorType) for v in [*node.inputs, *node.outputs]):
            raise NotImplementedError(f"{node.op} of sparse matrices has no form for a batch")
        results = vectorize_rules(node.op, node, *inputs)
        outputs = list(results.outputs if isinstance(results, Apply) else results)
    return outputs


def _added_axes(core: Variable, x: Variable) -> int:
    return getattr(x.type, "ndim", 0) - getattr(core.type, "ndim", 0)


@singledispatch
def _own_outputs(op: Op, node: Apply, inputs: Sequence[Variable]) -> list[Any] | None:
    """The outputs by a rule of loopax's own; None where PyTensor's rule will do."""
    facts = facts_of(op)
    if facts.structure is not Structure.ELEMENTWISE or facts.behind(node, 1) is None:
        return None  # a function of numbers has a structure, and no form for arrays
    n = max(x.type.ndim for x in inputs)
    return list(op.make_node(*(_with_axes_in_front(x, n) for x in inputs)).outputs)


def _with_axes_in_front(x: Variable, ndim: int) -> Any:
    """Add leading axes to ``x`` up to ``ndim``; constants stay constants, and transposes are merged."""
    n_missing = ndim - x.type.ndim
    if not n_missing:
        return x
    if isinstance(x, Constant):
        return pt.constant(x.data[(None,) * n_missing], dtype=x.type.dtype)
    return shuffled(x, [*["x"] * n_missing, *range(x.type.ndim)])


@_own_outputs.register
def _(op: Shape, node: Apply, inputs: Sequence[Any]) -> list[Any] | None:
    return [inputs[0].shape[_added_axes(node.inputs[0], inputs[0]) :]]


@_own_outputs.register
def _(op: Shape_i, node: Apply, inputs: Sequence[Any]) -> list[Any] | None:
    return [inputs[0].shape[op.i + _added_axes(node.inputs[0], inputs[0])]]


@_own_outputs.register
def _(op: Join, node: Apply, inputs: Sequence[Variable]) -> list[Any] | None:
    axis, cores = axis_of(node), joined_by(op, node.inputs)
    arrays = _repeated(cores, joined_by(op, inputs))
    if axis is None or arrays is None:
        return None
    return [pt.join(axis + _added_axes(cores[0], arrays[0]), *arrays)]


@_own_outputs.register
def _(op: Alloc, node: Apply, inputs: Sequence[Any]) -> list[Any] | None:
    value, *shape = inputs
    if any(v.type.ndim for v in shape):
        return None
    n = _added_axes(node.inputs[0], value)
    return [pt.alloc(_with_axes_behind(value, n, n + len(shape)), *lengths(value)[:n], *shape)]


@_own_outputs.register
def _(op: IncSubtensor, node: Apply, inputs: Sequence[Any]) -> list[Any] | None:
    targets, value = _repeated(node.inputs[:2], inputs[:2]), inputs[1]
    if targets is None or any(v.type.ndim for v in inputs[2:]):
        return None
    n = _added_axes(node.inputs[0], targets[0])
    place = targets[0][(*[slice(None)] * n, *indices_from_subtensor(inputs[2:], op.idx_list))]
    if _added_axes(node.inputs[1], value):
        value = _with_axes_behind(value, n, place.type.ndim)
    return [(pt.set_subtensor if op.set_instead_of_inc else pt.inc_subtensor)(place, value)]


@_own_outputs.register
def _(op: Reshape, node: Apply, inputs: Sequence[Any]) -> list[Any] | None:
    (x, shape), core_lengths = inputs, entries_of(node.inputs[1])
    is_empty = 0 in node.outputs[0].type.shape
    if shape.type.ndim != 1 or (core_lengths is None and not is_empty):
        return None
    n, ndim = _added_axes(node.inputs[0], x), node.outputs[0].type.ndim
    new = entries_of(shape) or [shape[k] for k in range(ndim)]
    for k in (k for k, v in enumerate(core_lengths or ()) if is_open(v)):
        others = reduce(mul, [v for j, v in enumerate(new) if j != k], 1)
        new[k] = reduce(mul, lengths(x)[n:], 1) // pt.maximum(others, 1)
    dims = [*lengths(x)[:n], *new]
    # PyTensor (3.0 and 3.3.8) gives an empty Reshape the length 0 on an axis of unknown length.
    return [
        filled(pt.zeros((), x.type.dtype), dims)
        if is_empty
        else pt.reshape(x, dims, ndim=len(dims))
    ]


def _with_axes_behind(x: TensorVariable, n: int, ndim: int) -> Any:
    """Add axes to ``x`` up to ``ndim``, behind its first ``n``."""
    return x.dimshuffle(*range(n), *["x"] * (ndim - x.type.ndim), *range(n, x.type.ndim))


def _repeated(cores: Sequence[Any], xs: Sequence[TensorVariable]) -> list[Any] | None:
    """Repeat ``xs`` that have no batch axes; None where their batch axes differ."""
    added = list(map(_added_axes, cores, xs))
    batches = {x.type.broadcastable[:n] for x, n in zip(xs, added, strict=True) if n}
    if len(batches) != 1:
        return None
    batch = next(lengths(x)[:n] for x, n in zip(xs, added, strict=True) if n)
    return [x if n else filled(x, [*batch, *lengths(x)]) for x, n in zip(xs, added, strict=True)]
