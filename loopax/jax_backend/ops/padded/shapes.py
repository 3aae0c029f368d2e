"""Ops that create or reshape a `PaddedArray`, with lengths known only at run time.

A length has an interval, and the array is padded to its upper end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape
from pytensor.tensor.subtensor import Subtensor

from loopax.base.upstream.pytensor import indices_from_subtensor, joined_by
from loopax.facts.elementwise import scalar_op_of
from loopax.ir import FitRows
from loopax.ir.ops.rows import KeepRows
from loopax.ir.sizes.dim_expr import asked_length
from loopax.jax_backend.staging.evaluate import Site, refuse_trace
from loopax.jax_backend.staging.intervals import known_interval
from loopax.jax_backend.staging.legal import or_refused, refused_rows
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray, as_padded
from loopax.numerics.arrays import Array


@trace_rule(Reshape)
def reshape(site: Site, x: PaddedArray, shape: Array) -> Any:
    return _reshaped(site, x, lengths_of(site, site.node.inputs[1]))


@trace_rule(JoinDims)
def join_dims(site: Site, x: PaddedArray, *axis: Array) -> Any:
    first, n = site.op.start_axis, site.op.n_axes
    lengths = _lengths_of_array(x)
    joined = lengths[first : first + n]
    value: Any = prod([p.value for p in joined])
    most = prod([p.most for p in joined if p.most is not None])
    new = _Length(None if any(p.known is None for p in joined) else value, value, most)
    return _reshaped(site, x, [*lengths[:first], new, *lengths[first + n :]])


@trace_rule(SplitDims)
def split_dims(site: Site, x: PaddedArray, dims: Array) -> Any:
    if not isinstance(x, PaddedArray):
        refuse_trace(site)
    axis, lengths = site.op.axis, _lengths_of_array(x)
    new = lengths_of(site, site.node.inputs[1])
    return _reshaped(site, x, [*lengths[:axis], *new, *lengths[axis + 1 :]])


def _reshaped(site: Site, x: PaddedArray, asked: list[_Length]) -> Any:
    """Reshape ``x`` to the lengths ``asked``, one of which may be open; flat positions are kept."""
    if not isinstance(x, PaddedArray):
        refuse_trace(site)
    asked = _inferred(x, asked)
    known: list[Any] = [p.known for p in asked]
    axis = _same_axis(x, known)
    if axis is not None:
        shape = [x.bound if k == axis else n for k, n in enumerate(known)]
        legal = x.length == asked[axis].value if known[axis] is None else True
        return refused_rows(site.context, legal, PaddedArray(x.data.reshape(shape), x.length, axis))
    open_axes = [k for k, n in enumerate(known) if n in (None, -1)]
    if len(open_axes) > 1:
        refuse_trace(site)
    flat = x.raveled()
    if not open_axes:
        count = int(np.prod(known, dtype=int))
        data = flat.fitted(count).data.reshape(known)
        return or_refused(site.context, flat.length == count, data)
    (axis,) = open_axes
    each = int(np.prod([n for k, n in enumerate(known) if k != axis], dtype=int))
    if not each:
        refuse_trace(site)
    length = flat.length // each if known[axis] == -1 else asked[axis].value
    room = flat.bound // each
    most = asked[axis].most if known[axis] is None else None
    room = room if most is None else min(room, most)
    shape = [room if k == axis else n for k, n in enumerate(known)]
    legal = length * each == flat.length
    if 0 in shape:
        none = PaddedArray(jnp.zeros(shape, x.dtype), length, axis)
        return refused_rows(site.context, legal, none)
    inner, outer = int(np.prod(shape[axis + 1 :], dtype=int)), int(np.prod(shape[:axis], dtype=int))
    row = jnp.minimum(jnp.arange(room), jnp.maximum(length - 1, 0))
    rows = jnp.arange(outer)[:, None] * length + row
    at = (rows[:, :, None] * inner + jnp.arange(inner)).reshape(shape)
    data = flat.data[jnp.clip(at, 0, flat.bound - 1)]
    return refused_rows(site.context, legal, PaddedArray(data, length, axis))


def _inferred(x: PaddedArray, asked: list[_Length]) -> list[_Length]:
    """Replace the -1 in ``asked`` by its number, if one of the lengths is the length of ``x`` itself."""
    open_lengths = [p for p in asked if p.known is None]
    if [p.known for p in asked].count(-1) != 1 or len(open_lengths) != 1:
        return asked
    others = int(np.prod([p.known for p in asked if p.known not in (None, -1)], dtype=int))
    row = int(np.prod([n for k, n in enumerate(x.data.shape) if k != x.axis], dtype=int))
    is_own = open_lengths[0].value is x.length or open_lengths[0].is_count
    if not is_own or not others or row % others:
        return asked
    n = row // others
    return [_Length(n, n, n) if p.known == -1 else p for p in asked]


def _same_axis(x: PaddedArray, known: list[Any]) -> int | None:
    """The axis of the result along which the rows stay as they are; None if there is none."""
    open_axes = [k for k, n in enumerate(known) if n in (None, -1)]
    if len(open_axes) != 1:
        return None
    (axis,) = open_axes
    sides = (known[:axis], x.data.shape[: x.axis]), (known[axis + 1 :], x.data.shape[x.axis + 1 :])
    same = all(np.prod(new, dtype=int) == np.prod(old, dtype=int) for new, old in sides)
    return axis if same else None


@dataclass(frozen=True)
class _Length:
    """A requested length: ``known`` while JAX traces, or else at ``most`` a number.

    ``is_count`` says that it is the number of true elements of a mask, or the length of an array.
    """

    known: int | None
    value: Any
    most: int | None
    is_count: bool = False


def lengths_of(site: Site, v: Variable) -> list[_Length]:
    """The lengths in the vector ``v``, or the elements of an array from which it is computed."""
    op, inputs = (None, []) if v.owner is None else (v.owner.op, v.owner.inputs)
    if isinstance(op, MakeVector):
        return [_length(site, u) for u in inputs]
    if scalar_op_of(op) is not None and len(inputs) == 1:  # a cast
        return lengths_of(site, inputs[0])
    if v.type.ndim == 0:
        return [_length(site, v)]
    if isinstance(op, DimShuffle | Reshape):
        return lengths_of(site, inputs[0])
    if isinstance(op, Alloc) and all(inputs[0].type.broadcastable):  # a number repeated
        times = np.prod([site.frame.static_value(u, v.owner) for u in inputs[1:]], dtype=int)
        return lengths_of(site, inputs[0]) * int(times)
    if isinstance(op, Join):
        return [n for p in joined_by(op, inputs) for n in lengths_of(site, p)]
    if isinstance(op, Subtensor) and not any(is_traced(site.frame.read(u)) for u in inputs[1:]):
        (part,) = indices_from_subtensor([site.frame.read(u) for u in inputs[1:]], op.idx_list)
        return lengths_of(site, inputs[0])[part]
    if isinstance(op, Shape) and isinstance(x := site.frame.read(inputs[0]), PaddedArray):
        return _lengths_of_array(x)
    if is_traced(site.frame.read(v)):
        refuse_trace(site)
    return [_Length(int(n), int(n), int(n)) for n in np.asarray(site.frame.read(v))]


def _lengths_of_array(x: PaddedArray) -> list[_Length]:
    lengths = [_Length(n, n, n) for n in x.data.shape]
    lengths[x.axis] = _Length(None, x.length, x.bound)
    return lengths


def _length(site: Site, v: Variable) -> _Length:
    known, interval = _known(site, v), known_interval(site.frame, v)
    most = None if interval is None else max(interval[1], 0)
    is_sum = v.owner is not None and isinstance(v.owner.op, Sum)
    is_count = asked_length(v) is not None or (is_sum and v.owner.inputs[0].type.dtype == "bool")
    return _Length(known, site.frame.read(v) if known is None else known, most, is_count)


@trace_rule(Alloc)
def alloc(site: Site, value: AnyArray, *lengths: Array) -> Any:
    if isinstance(value, PaddedArray):
        return _spread(site, value)
    return _filled(site, value, lengths, skipped=1)


def _spread(site: Site, trace: PaddedArray) -> PaddedArray:
    """Broadcast ``trace`` along other axes; its own axis keeps its length."""
    asked = site.node.inputs[1:]
    axis = trace.axis + len(asked) - jnp.ndim(trace.data)
    shape = [None if k == axis else _known(site, n) for k, n in enumerate(asked)]
    shape[axis] = trace.data.shape[trace.axis]
    if None in shape:
        refuse_trace(site)
    return PaddedArray(jnp.broadcast_to(trace.data, tuple(shape)), trace.length, axis)


@trace_rule(AllocEmpty)
def alloc_empty(site: Site, *lengths: Array) -> Any:
    zero = np.zeros((), site.out.type.dtype)
    return _filled(site, zero, lengths, skipped=0)


def _filled(site: Site, value: Array, lengths: Sequence[Any], skipped: int) -> Any:
    """An array with one length that is known only at run time."""
    known = [_known(site, v) for v in site.node.inputs[skipped:]]
    open_axes = [k for k, n in enumerate(known) if n is None]
    if not open_axes:  # the open length lies across the rows of a trace
        return jnp.broadcast_to(jnp.asarray(value), tuple(known))
    if len(open_axes) > 1:
        refuse_trace(site)
    (axis,) = open_axes
    length = jnp.maximum(lengths[axis], 0)
    bound = _room(site, skipped + axis)
    shape = tuple(bound if n is None else n for n in known)
    own = np.ndim(value) - (len(shape) - axis)
    if own >= 0 and np.shape(value)[own] != 1:
        refuse_trace(site)
    return PaddedArray(jnp.broadcast_to(jnp.asarray(value), shape), length, axis)


def _known(site: Site, v: Variable) -> int | None:
    """The value of the integer ``v`` if it is known, including the known lengths of a padded array."""
    x = site.frame.read(v)
    if not is_traced(x):
        return int(x)
    interval = known_interval(site.frame, v)
    return interval[0] if interval is not None and interval[0] == interval[1] else None


def _room(site: Site, k: int) -> int:
    known = known_interval(site.frame, site.node.inputs[k])
    if known is None:
        refuse_trace(site)
    return max(known[1], 0)


@trace_rule(ARange)
def arange(site: Site, start: Array, stop: Array, step: Array) -> PaddedArray:
    if is_traced(start) or is_traced(step) or int(step) <= 0:
        refuse_trace(site)
    bound = len(range(int(start), _room(site, 1), int(step)))
    length = jnp.maximum((stop - int(start) + int(step) - 1) // int(step), 0)
    data = (int(start) + int(step) * jnp.arange(bound)).astype(site.out.type.dtype)
    return PaddedArray(data, length).repeated()


@trace_rule(FitRows)
def fit_rows(site: Site, x: PaddedArray, length: Array) -> Any:
    """The last ``length`` rows, followed by zeros if there are fewer."""
    x = as_padded(x)
    if x.axis:
        refuse_trace(site)
    bound = int(length) if not is_traced(length) else _room(site, 1)
    row = jnp.arange(bound)
    skipped = jnp.maximum(x.length - length, 0)
    there = (row < x.length - skipped).reshape(-1, *[1] * (x.ndim - 1))
    data = jnp.where(there, x.data[jnp.clip(row + skipped, 0, x.bound - 1)], 0)
    return data if not is_traced(length) else PaddedArray(data, length).repeated()


@trace_rule(KeepRows)
def keep_rows(site: Site, x: AnyArray, count: Array, length: Array) -> AnyArray:
    """The first ``count`` rows, followed by zeros; with ``last`` the last rows, preceded by zeros."""
    x = as_padded(x)
    if x.axis:
        refuse_trace(site)
    bound = int(length) if not is_traced(length) else _room(site, 2)
    row, n = jnp.arange(bound), jnp.minimum(jnp.minimum(count, length), x.length)
    place = row - (length - n) + (x.length - n) if site.op.last else row
    there = row >= length - n if site.op.last else row < n
    rows = x.data[jnp.clip(place, 0, x.bound - 1)]
    data = jnp.where(there.reshape(-1, *[1] * (x.ndim - 1)), rows, 0)
    return data if not is_traced(length) else PaddedArray(data, length).repeated()
