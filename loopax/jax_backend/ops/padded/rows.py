"""Ops that select, write, join and split rows of a `PaddedArray`.

Each computes the source of every row, in traced numbers, within an array of known length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from pytensor.tensor.basic import Join, Split
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from loopax.base.upstream.pytensor import indices_from_subtensor, joined_by
from loopax.jax_backend.ops.indexing.index import from_front, short_step
from loopax.jax_backend.ops.padded.shapes import lengths_of
from loopax.jax_backend.ops.stacking import axis_of
from loopax.jax_backend.staging.evaluate import Site, refuse_trace
from loopax.jax_backend.staging.legal import or_refused, refused_rows
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray, as_padded
from loopax.numerics.arrays import Array


@trace_rule(Subtensor)
def subtensor(site: Site, x: AnyArray, *indices: ArrayLike) -> AnyArray:
    return read_part(site, x, indices_from_subtensor(indices, site.op.idx_list))


@trace_rule(IncSubtensor)
def inc_subtensor(site: Site, x: AnyArray, y: AnyArray, *indices: ArrayLike) -> Any:
    entries = indices_from_subtensor(indices, site.op.idx_list)
    return write_part(site, x, y, entries, site.op.set_instead_of_inc)


def read_part(site: Site, x: AnyArray, entries: Sequence[Any]) -> AnyArray:
    """Read ``x[entries]``, where each entry is a slice or a number."""
    if _is_known(x, entries):
        return jnp.asarray(x)[tuple(entries)]
    at = _place(site, x, entries)
    x = _leading(x, at.axis)
    if isinstance(at.first, slice):
        start, step, length = _slice(at.first, x)
        rows = x.rows_at(start + step * jnp.arange(_most_rows(at.first, x.bound)), length)
        return PaddedArray(
            jnp.moveaxis(rows.data[(slice(None), *at.others)], 0, at.result_axis),
            length,
            at.result_axis,
        )
    k = from_front(at.first, x.length)
    row = x.data[jnp.clip(k, 0, x.bound - 1)][at.others]
    return or_refused(site.context, (k >= 0) & (k < x.length), row)


def write_part(site: Site, x: AnyArray, y: AnyArray, entries: Sequence[Any], sets: bool) -> Any:
    """Set ``x[entries]`` to ``y``, or add ``y`` there."""
    if _is_known(x, entries):
        place = jnp.asarray(x).at[tuple(entries)]
        y = _fitted(site, y, jax.eval_shape(place.get).shape) if isinstance(y, PaddedArray) else y
        return place.set(y) if sets else place.add(y)
    at = _place(site, x, entries)
    x = _leading(x, at.axis)
    if isinstance(at.first, slice):
        start, step, length = _slice(at.first, x)
        bound = _most_rows(at.first, x.bound)
        rows = jnp.where(jnp.arange(bound) < length, start + step * jnp.arange(bound), x.bound)
        ndim = x.ndim - sum(isinstance(k, int) for k in at.others)
        y, legal = _written(site, y, ndim, at.result_axis, length, bound)
    else:
        if isinstance(y, PaddedArray):
            refuse_trace(site)
        k = from_front(at.first, x.length)
        legal = (k >= 0) & (k < x.length)
        rows = jnp.where(legal, k, x.bound)
    place = x.data.at[(rows, *at.others)]
    y = jnp.asarray(y, x.dtype)
    data = place.set(y, mode="drop") if sets else place.add(y, mode="drop")
    written = refused_rows(site.context, legal, PaddedArray(data, x.length).repeated())
    return PaddedArray(jnp.moveaxis(written.data, 0, at.axis), written.length, at.axis)


def _fitted(site: Site, y: PaddedArray, shape: tuple[int, ...]) -> jax.Array:
    """Fit ``y`` to a part of ``shape``; `no_number` if it has another length."""
    n = shape[y.axis + len(shape) - y.ndim]
    return or_refused(site.context, y.length == n, y.fitted(n).data)


def _is_known(x: AnyArray, entries: Sequence[Any]) -> bool:
    """Whether the lengths of ``x[entries]`` are known while JAX traces."""
    return not isinstance(x, PaddedArray) and not any(
        map(is_traced, jax.tree.leaves([_parts(e) for e in entries]))
    )


@dataclass(frozen=True)
class _Place:
    """An index: ``first`` indexes ``axis``, along which the rows lie.

    ``others``, whose numbers are known, index the other axes in order. The rows of a slice lie along
    ``result_axis`` of the result.
    """

    axis: int
    first: Any
    others: tuple[Any, ...]
    result_axis: int


def _place(site: Site, x: AnyArray, index: Sequence[Any]) -> _Place:
    entries = [*index, *[slice(None)] * (np.ndim(x) - len(index))]
    open_axes = [
        k for k, e in enumerate(entries) if any(map(is_traced, jax.tree.leaves(_parts(e))))
    ]
    axis = x.axis if isinstance(x, PaddedArray) else (open_axes or [0])[0]
    if any(k != axis for k in open_axes):
        refuse_trace(site)
    first = entries.pop(axis)
    others = [e if isinstance(e, slice) else int(e) for e in entries]
    return _Place(axis, first, tuple(others), sum(isinstance(e, slice) for e in others[:axis]))


def _leading(x: AnyArray, axis: int) -> PaddedArray:
    """Move the rows of the padded array to the first axis."""
    x = as_padded(x, axis)
    return PaddedArray(jnp.moveaxis(x.data, axis, 0), x.length) if axis else x


def _written(
    site: Site, y: AnyArray, ndim: int, axis: int, length: jax.Array, bound: int
) -> tuple[Any, Any]:
    """The rows to write to ``length`` rows along ``axis``, padded to ``bound``, and whether they fit.

    The rows lie along the first axis of the result.
    """
    legal: Any = True
    missing = ndim - np.ndim(y)
    if isinstance(y, PaddedArray):
        if y.axis + missing != axis:
            refuse_trace(site)
        legal, y = y.length == length, y.fitted(bound).data
    elif axis >= missing and not site.node.inputs[1].type.broadcastable[axis - missing]:
        y = as_padded(jnp.asarray(y), axis - missing)
        legal, y = length == y.length, y.fitted(bound).data
    y = jnp.asarray(y)
    return jnp.moveaxis(y.reshape(*[1] * missing, *y.shape), axis, 0), legal


def _parts(k: object) -> Any:
    return [k.start, k.stop, k.step] if isinstance(k, slice) else k


def _slice(k: slice, x: PaddedArray) -> tuple[Any, int, Any]:
    """The start, step and length of ``k`` in the rows of ``x``, as in Python's ``slice.indices``."""
    n = x.length
    step = 1 if k.step is None else short_step(int(k.step), x.bound)
    low, high = (0, n) if step > 0 else (-1, n - 1)

    def end(x: Any, default: Array | int) -> Any:
        return default if x is None else jnp.clip(from_front(x, n), low, high)

    start, stop = end(k.start, low if step > 0 else high), end(k.stop, high if step > 0 else low)
    return start, step, jnp.maximum((stop - start + (step - (1 if step > 0 else -1))) // step, 0)


def _most_rows(k: slice, bound: int) -> int:
    """The greatest number of rows that a slice takes of at most ``bound`` rows."""
    known = [p for p in (k.start, k.stop, k.step) if p is not None]
    if any(is_traced(p) or p < 0 for p in known):
        return bound
    return len(range(*slice(*(None if p is None else int(p) for p in _parts(k))).indices(bound)))


@trace_rule(Join)
def join(site: Site, *values: AnyArray) -> PaddedArray:
    """Join the parts: row ``j`` comes from the part that it falls in, past the padding of earlier parts."""
    axis, parts = axis_of(site), joined_by(site.op, values)
    traces = [p for p in parts if isinstance(p, PaddedArray)]
    if any(p.axis != axis for p in traces):
        if len({p.axis for p in traces}) > 1:
            refuse_trace(site)
        parts = [as_padded(p, traces[0].axis) for p in parts]
        bound = min(p.bound for p in parts)
        data = [p.fitted(bound).data for p in parts]
        lengths = jnp.stack([jnp.asarray(p.length) for p in parts])
        length = lengths.max()
        joined = PaddedArray(jnp.concatenate(data, axis), length, traces[0].axis)
        return refused_rows(site.context, (lengths == length).all(), joined)
    pieces = [as_padded(p, axis) for p in parts]
    whole = jnp.concatenate([p.data.astype(site.out.type.dtype) for p in pieces], axis)
    row, room = jnp.arange(whole.shape[axis]), 0
    begins: Array | int = 0
    order = row
    for p in pieces[:-1]:
        begins, room = begins + p.length, room + p.bound
        order = jnp.where(row >= begins, row - begins + room, order)
    return PaddedArray(whole, whole.shape[axis], axis).rows_at(order, begins + pieces[-1].length)


@trace_rule(Split)
def split(site: Site, x: AnyArray, *entries: AnyArray) -> Any:
    """Split ``x`` into pieces, the gradient of a join; a piece of known length is a plain array."""
    axis = axis_of(site)
    parts = lengths_of(site, site.node.inputs[-1])
    if isinstance(x, PaddedArray) and x.axis != axis:
        if any(p.known is None for p in parts):
            refuse_trace(site)
        ends = np.cumsum([p.known for p in parts])[:-1]
        return [x.with_data(d) for d in jnp.split(x.data, ends, axis)]
    x = as_padded(x, axis)
    fits = sum(p.value for p in parts) == x.length
    for p in parts:
        fits &= p.value >= 0
    x = refused_rows(site.context, fits, x)
    begin, pieces = 0, []
    for p in parts:
        if p.known is not None:
            pieces.append(x.rows_at(begin + jnp.arange(p.known), p.known).data)
        else:
            room = x.bound if p.most is None else min(p.most, x.bound)
            length = jnp.where(fits, p.value, room)
            pieces.append(x.rows_at(begin + jnp.arange(room), length))
        begin = begin + p.value
    return pieces
