"""Masked arithmetic on a `PaddedArray`, whose length is known only at run time.

Ops that map rows to rows are applied to all rows, including the padding, which repeats the last row: this
holds for every op whose record gives the result the axis of the rows, and which has no rule of its own. Ops
that combine rows, sums and products along the trace, mask the padding. Ops that select and join rows are in
`rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytensor.scalar as ps
from jax.typing import ArrayLike
from pytensor.compile.ops import TypeCastingOp
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.extra_ops import CumOp, RavelMultiIndex, UnravelIndex
from pytensor.tensor.math import Argmax, Dot, MulWithoutZeros
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax

from loopax.facts import facts_of
from loopax.facts.axes import raises_of_nothing
from loopax.facts.families import normalized
from loopax.ir import Call, Cond, Scan
from loopax.jax_backend.staging.evaluate import Site, convert_arrays, refuse_trace
from loopax.jax_backend.staging.legal import or_refused, refused_rows
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray, as_padded, lengths
from loopax.numerics.arrays import Array


@trace_rule(Scan, Call, Cond)
def passed_on(site: Site, *values: AnyArray) -> Any:
    """Pass padded arrays on to bodies, whose ops have rules of their own."""
    return convert_arrays(site, values)


@trace_rule(Op)
def by_record(site: Site, *values: AnyArray) -> Any:
    """Apply an op row by row, if its record says that the result has the axis of the rows."""
    axes = facts_of(site.op).axes(site.node)
    if axes is None or len(site.node.outputs) > 1:
        refuse_trace(site)
    of_result = {
        own.index(x.axis) if x.axis in own else None
        for x, own in zip(values, axes, strict=True)
        if isinstance(x, PaddedArray)
    }
    axis = of_result.pop() if len(of_result) == 1 else None
    if axis is None:
        refuse_trace(site)
    return _of_rows(site, values, [own[axis] for own in axes], axis)


@trace_rule(UnravelIndex, RavelMultiIndex)
def index_of_several(site: Site, *values: AnyArray) -> Any:
    *indices, dims = values
    if isinstance(dims, PaddedArray):
        refuse_trace(site)
    return _of_broadcast_rows(site, indices, (dims,))


def _of_broadcast_rows(
    site: Site, values: Sequence[AnyArray], others: Sequence[Any] = ()
) -> list[PaddedArray]:
    """Apply an op to each row of ``values``, which are broadcast, and to all of ``others``."""
    axes = {x.axis for x in values if isinstance(x, PaddedArray)}
    if len(axes) > 1:
        refuse_trace(site)
    (axis,) = axes
    along = [axis if np.ndim(x) else None for x in values]
    return _of_rows(site, [*values, *others], [*along, *[None] * len(others)], axis)


def _of_rows(
    site: Site, values: Sequence[AnyArray], axes: Sequence[int | None], axis: int
) -> list[PaddedArray]:
    """Apply an op to each row, with rows along ``axis`` of the results and along ``axes`` of ``values``.

    None in ``axes`` marks a value that is used whole.
    """
    # An input that the op does not broadcast along this axis has rows of its own, even a single one.
    along = [
        None if k is None or (not isinstance(x, PaddedArray) and v.type.broadcastable[k]) else k
        for x, v, k in zip(values, site.node.inputs, axes, strict=True)
    ]
    traces = [as_padded(x, k) for x, k in zip(values, along, strict=True) if k is not None]
    length = next(x.length for x in values if isinstance(x, PaddedArray))
    bound = min(t.bound for t in traces)
    rows = iter([t.fitted(bound).data for t in traces])
    inputs = [x if k is None else next(rows) for x, k in zip(values, along, strict=True)]
    outs = convert_arrays(site, inputs)
    others = [t.length for t in traces if t.length is not length]
    if not others:
        return [PaddedArray(x, length, axis) for x in outs]
    equal = jnp.all(jnp.stack([jnp.asarray(n == length) for n in others]))
    return [refused_rows(site.context, equal, PaddedArray(x, length, axis)) for x in outs]


@trace_rule(CheckAndRaise)
def check(site: Site, x: PaddedArray, *conditions: ArrayLike) -> Any:
    """Check only the actual rows."""
    conditions = tuple(c.masked(True) if isinstance(c, PaddedArray) else c for c in conditions)
    if not isinstance(x, PaddedArray):
        return convert_arrays(site, [x, *conditions])
    return [x.with_data(y) for y in convert_arrays(site, [x.data, *conditions])]


@trace_rule(TypeCastingOp)
def of_another_type(site: Site, x: PaddedArray) -> Any:
    return [x.with_data(y) for y in convert_arrays(site, [x.data])]


@trace_rule(SpecifyShape)
def specify_shape(site: Site, x: PaddedArray, *dims: Array) -> Any:
    asked = dims[x.axis]
    if asked is None:
        return x
    return refused_rows(site.context, x.length == asked, x)


@trace_rule(Shape)
def shape(site: Site, x: PaddedArray) -> Any:
    return jnp.stack([jnp.asarray(n) for n in lengths(x)])


@trace_rule(Shape_i)
def shape_i(site: Site, x: PaddedArray) -> Any:
    return x.length if site.op.i == x.axis else np.asarray(x.data.shape[site.op.i])


def _least(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return False
    return -np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min


def greatest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return True
    return np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).max


# The neutral element of each reduction.
_NEUTRAL: dict[type, Callable[[Any], Any]] = {
    ps.Add: lambda dtype: 0,
    ps.Mul: lambda dtype: 1,
    ps.ScalarMaximum: _least,
    ps.ScalarMinimum: greatest,
    ps.AND: lambda dtype: True if dtype.kind == "b" else -1,
    ps.OR: lambda dtype: 0,
    MulWithoutZeros: lambda dtype: 1,
}


@trace_rule(CAReduce)
def reduce(site: Site, x: PaddedArray) -> AnyArray:
    op = site.op
    neutral = _NEUTRAL.get(type(op.scalar_op), lambda dtype: None)
    return _reduced(site, x, neutral(x.dtype), of_some=raises_of_nothing(op))


@trace_rule(Argmax)
def argmax(site: Site, x: PaddedArray) -> AnyArray:
    axes = range(x.ndim) if site.op.axis is None else site.op.axis
    result = _reduced(site, x, _least(x.dtype), of_some=True)
    if x.axis not in axes:
        return result
    return jnp.where(x.length > 0, x.positions(axes).in_array(result), result)


def _reduced(site: Site, x: PaddedArray, neutral: int | float | None, of_some: bool) -> Any:
    """Reduce ``x``; ``of_some`` says that an array without rows has no result."""
    axes = range(x.ndim) if site.op.axis is None else site.op.axis
    if x.axis not in axes:
        return by_record(site, x)
    if neutral is None:
        refuse_trace(site)
    (result,) = convert_arrays(site, [x.masked(neutral)])
    return or_refused(site.context, x.length > 0, result) if of_some else result


@trace_rule(Softmax, LogSoftmax)
def softmax(site: Site, x: PaddedArray) -> Any:
    """Softmax; along the trace the padding has weight 0."""
    if x.axis not in normalized(site.op.axis, x.ndim):
        return by_record(site, x)
    (data,) = convert_arrays(site, [x.masked(_least(x.dtype))])
    return x.with_data(data).repeated()


@trace_rule(CumOp)
def cumulated(site: Site, x: PaddedArray) -> Any:
    """Cumulate ``x``: the padding comes last and does not affect earlier rows."""
    if site.op.axis != x.axis:
        return by_record(site, x)
    (data,) = convert_arrays(site, [x.data])
    return x.with_data(data).repeated()


@trace_rule(Dot)
def dot(site: Site, a: AnyArray, b: AnyArray) -> AnyArray:
    of_a, of_b = ("k", "ik")[np.ndim(a) - 1], ("k", "kj")[np.ndim(b) - 1]
    return _contracted(site, a, b, of_a, of_b)


@trace_rule(BatchedDot)
def batched_dot(site: Site, a: AnyArray, b: AnyArray) -> Any:
    return _contracted(site, a, b, "nik"[: np.ndim(a)], "nkj"[: np.ndim(b)])


def _contracted(site: Site, a: AnyArray, b: AnyArray, of_a: str, of_b: str) -> AnyArray:
    """The product of ``a`` and ``b``, whose axes have letters; ``k`` is contracted."""
    pairs = ((a, of_a), (b, of_b))
    names = {of[x.axis] for x, of in pairs if isinstance(x, PaddedArray)}
    if len(names) > 1:
        refuse_trace(site)
    (name,) = names
    along = [as_padded(x, of.index(name)) for x, of in pairs if name in of]
    bound, length = min(x.bound for x in along), along[0].length
    fitted = [x.fitted(bound) for x in along]
    rows = iter([x.masked(0) if name == "k" else x.data for x in fitted])
    (result,) = convert_arrays(site, [next(rows) if name in of else x for x, of in pairs])
    fits = along[-1].length is length or along[-1].length == length
    if name == "k":
        return or_refused(site.context, fits, result)
    of_out = [n for n in dict.fromkeys(of_a + of_b) if n != "k"]
    return refused_rows(site.context, fits, PaddedArray(result, length, of_out.index(name)))


@trace_rule(Blockwise)
def blockwise(site: Site, *values: AnyArray) -> Any:
    """Apply a Blockwise to rows of the batch; along an axis within a row the core op has its own rule."""
    batch_ndim = site.op.batch_ndim(site.node)
    are_batches = {x.axis < batch_ndim for x in values if isinstance(x, PaddedArray)}
    if are_batches == {True}:
        return _of_broadcast_rows(site, values)
    if True in are_batches:
        refuse_trace(site)
    return convert_arrays(site, values)
