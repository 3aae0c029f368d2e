"""Ops that pick, write, join and make rows of a `Trace`.

Each computes which row goes where, in numbers that JAX traces, within an array of known length.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Join
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from loopax.ir import FitRows
from loopax.ir.compat import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.ir.rows import KeepRows
from loopax.jax_backend.evaluate import Site, convert_arrays, refuse_trace
from loopax.jax_backend.lengths import known_range
from loopax.jax_backend.registry import trace_rule
from loopax.jax_backend.static import is_traced, no_number
from loopax.jax_backend.trace import Trace, as_trace, places_of


@trace_rule(Subtensor)
def subtensor(site: Site, x: Any, *indices: Any) -> Any:
    first, rest = _first_index(site, x, indices)
    x = as_trace(x)
    if isinstance(first, slice):
        start, step, length = _slice(first, x.length)
        bound = _most_rows(first, x.bound)
        found = x.taken(start + step * jnp.arange(bound), length)
        return Trace(found.data[(slice(None), *rest)], length) if rest else found
    k = jnp.where(first < 0, first + x.length, first)
    row = x.data[jnp.clip(k, 0, x.bound - 1)][tuple(rest)]
    return jnp.where((k >= 0) & (k < x.length), row, no_number(row.dtype))


@trace_rule(AdvancedSubtensor1, AdvancedSubtensor)
def advanced_subtensor(site: Site, x: Any, *indices: Any) -> Any:
    """At numbers along the trace, or at the places that a trace of numbers says."""
    if isinstance(x, Trace):
        if x.axis or len(indices) != 1 or isinstance(indices[0], slice | Trace):
            refuse_trace(site)
        k = jnp.asarray(indices[0])
        if k.dtype == bool:
            refuse_trace(site)
        k = jnp.where(k < 0, k + x.length, k)
        rows = x.data[jnp.clip(k, 0, x.bound - 1)]
        legal = ((k >= 0) & (k < x.length)).reshape(*k.shape, *[1] * (x.ndim - 1))
        return jnp.where(legal, rows, no_number(rows.dtype))
    places, length = _places(site, indices)
    (data,) = convert_arrays(site, [x, *places])
    return Trace(data, length)


@trace_rule(AdvancedIncSubtensor, AdvancedIncSubtensor1)
def advanced_inc_subtensor(site: Site, x: Any, y: Any, *indices: Any) -> Any:
    """What the gradient of the above does: what lies behind the end goes nowhere."""
    if isinstance(x, Trace):
        refuse_trace(site)
    places, length = _places(site, indices)
    bound = np.shape(places[0])[0]
    there = jnp.arange(bound) < length
    if isinstance(y, Trace):
        legal, y = y.length == length, y.fitted(bound).data
        y = jnp.where(legal, y, no_number(x.dtype))
    elif np.ndim(y) and np.shape(y)[0] != 1:
        refuse_trace(site)
    at = jnp.asarray(x).at[(jnp.where(there, places[0], np.shape(x)[0]), *places[1:])]
    y = jnp.asarray(y, x.dtype)
    return at.set(y, mode="drop") if site.op.set_instead_of_inc else at.add(y, mode="drop")


def _places(site: Site, indices: Any) -> tuple[list[Any], Any]:
    """The arrays of indices, all of them traces of one loop or mask, and their length."""
    if len(indices) == 1 and not isinstance(indices[0], slice) and indices[0].dtype == bool:
        indices = places_of(indices[0]) if is_traced(indices[0]) else indices
    if not all(isinstance(k, Trace) and k.ndim == 1 for k in indices):
        refuse_trace(site)
    return [k.data for k in indices], indices[0].length


@trace_rule(IncSubtensor)
def inc_subtensor(site: Site, x: Any, y: Any, *indices: Any) -> Any:
    first, rest = _first_index(site, x, indices)
    x = as_trace(x)
    if isinstance(first, slice):
        start, step, length = _slice(first, x.length)
        bound = _most_rows(first, x.bound)
        at = jnp.where(jnp.arange(bound) < length, start + step * jnp.arange(bound), x.bound)
        if isinstance(y, Trace):
            if y.axis:
                refuse_trace(site)
            legal, y = y.length == length, y.fitted(bound).data
        elif np.ndim(y) == x.ndim - sum(isinstance(k, int) for k in rest) and np.shape(y)[0] != 1:
            y = as_trace(y)
            legal, y = length == y.length, y.fitted(bound).data
        else:
            legal = True
        y = jnp.where(legal, y, no_number(x.dtype))
    else:
        k = jnp.where(first < 0, first + x.length, first)
        legal = (k >= 0) & (k < x.length)
        at, y = jnp.where(legal, k, x.bound), jnp.where(legal, y, no_number(x.dtype))
        x = Trace(jnp.where(legal, x.data, no_number(x.dtype)), x.length)
    place = x.data.at[(at, *rest)]
    y = jnp.asarray(y, x.dtype)
    data = place.set(y, mode="drop") if site.op.set_instead_of_inc else place.add(y, mode="drop")
    return Trace(data, x.length).repeated()


def _first_index(site: Site, x: Any, flat: Any) -> tuple[Any, list[Any]]:
    """The index along the trace, and those of the other axes, which are known."""
    if isinstance(x, Trace) and x.axis:
        refuse_trace(site)
    first, *rest = indices_from_subtensor(flat, site.op.idx_list)
    if any(is_traced(k) for k in jax.tree.leaves([_parts(r) for r in rest])):
        refuse_trace(site)
    return first, [slice(*_parts(r)) if isinstance(r, slice) else int(r) for r in rest]


def _parts(k: Any) -> Any:
    return (
        [None if p is None else p for p in (k.start, k.stop, k.step)] if isinstance(k, slice) else k
    )


def _slice(k: slice, n: Any) -> tuple[Any, int, Any]:
    """Start, step and length of ``k`` in ``n`` rows, as Python's ``slice.indices`` has them."""
    step = 1 if k.step is None else int(k.step)
    low, high = (0, n) if step > 0 else (-1, n - 1)

    def end(x: Any, default: Any) -> Any:
        return default if x is None else jnp.clip(jnp.where(x < 0, x + n, x), low, high)

    start, stop = end(k.start, low if step > 0 else high), end(k.stop, high if step > 0 else low)
    return start, step, jnp.maximum((stop - start + (step - (1 if step > 0 else -1))) // step, 0)


def _most_rows(k: slice, bound: int) -> int:
    """How many rows a slice takes of at most ``bound``, where that hangs on no number from the end."""
    known = [p for p in (k.start, k.stop, k.step) if p is not None]
    if any(is_traced(p) or p < 0 for p in known):
        return bound
    return len(range(*slice(*(None if p is None else int(p) for p in _parts(k))).indices(bound)))


@trace_rule(Join)
def join(site: Site, *values: Any) -> Any:
    """Row ``j`` comes from the part it falls in, whose rows lie behind the room of those before."""
    if hasattr(site.op, "axis"):  # since 3.3 it is no input
        axis, parts = site.op.axis, values
    else:
        axis, *parts = values
    axis = int(axis) % max(p.ndim if isinstance(p, Trace) else np.ndim(p) for p in parts)
    traces = [p for p in parts if isinstance(p, Trace)]
    if any(p.axis != axis for p in traces):
        if len({p.axis for p in traces}) > 1 or len(traces) < len(parts):
            refuse_trace(site)
        bound = min(p.bound for p in traces)
        data = [p.fitted(bound).data for p in traces]
        equal = jnp.all(jnp.stack([jnp.asarray(p.length == traces[0].length) for p in traces]))
        joined = jnp.concatenate(data, axis)
        joined = jnp.where(equal, joined, no_number(joined.dtype))
        return Trace(joined, traces[0].length, traces[0].axis)
    pieces = [as_trace(p, axis) for p in parts]
    data = jnp.concatenate([p.data.astype(site.out.type.dtype) for p in pieces], axis)
    row, begins, room = jnp.arange(data.shape[axis]), 0, 0
    order = row
    for p in pieces[:-1]:
        begins, room = begins + p.length, room + p.bound
        order = jnp.where(row >= begins, row - begins + room, order)
    return Trace(data, data.shape[axis], axis).taken(order, begins + pieces[-1].length)


@trace_rule(Alloc)
def alloc(site: Site, value: Any, *lengths: Any) -> Any:
    return _filled(site, value, [(k, x) for k, x in enumerate(lengths)], skipped=1)


@trace_rule(AllocEmpty)
def alloc_empty(site: Site, *lengths: Any) -> Any:
    zero = np.zeros((), site.out.type.dtype)
    return _filled(site, zero, [(k, x) for k, x in enumerate(lengths)], skipped=0)


def _filled(site: Site, value: Any, lengths: Any, skipped: int) -> Any:
    """An array with one length that is only known when the program runs."""
    open_axes = [k for k, n in lengths if is_traced(n)]
    if len(open_axes) != 1:
        refuse_trace(site)
    (axis,) = open_axes
    length = jnp.maximum(lengths[axis][1], 0)
    bound = _room(site, skipped + axis)
    shape = tuple(bound if k == axis else int(n) for k, n in lengths)
    if not isinstance(value, Trace):
        own = np.ndim(value) - (len(shape) - axis)
        if own >= 0 and np.shape(value)[own] != 1:
            refuse_trace(site)
        return Trace(jnp.broadcast_to(jnp.asarray(value), shape), length, axis)
    if value.axis != axis - (len(shape) - value.ndim):
        refuse_trace(site)
    data = jnp.broadcast_to(value.fitted(bound).data, shape)
    return Trace(jnp.where(value.length == length, data, no_number(data.dtype)), length, axis)


def _room(site: Site, k: int) -> int:
    known = known_range(site.frame, site.node.inputs[k])
    if known is None:
        refuse_trace(site)
    return max(known[1], 0)


@trace_rule(ARange)
def arange(site: Site, start: Any, stop: Any, step: Any) -> Any:
    if is_traced(start) or is_traced(step) or int(step) == 0:
        refuse_trace(site)
    bound = len(range(int(start), _room(site, 1), int(step))) if int(step) > 0 else 0
    if int(step) < 0:
        refuse_trace(site)
    length = jnp.maximum((stop - int(start) + int(step) - 1) // int(step), 0)
    data = (int(start) + int(step) * jnp.arange(bound)).astype(site.out.type.dtype)
    return Trace(data, length).repeated()


@trace_rule(FitRows)
def fit_rows(site: Site, x: Any, length: Any) -> Any:
    """The last ``length`` rows, zeros behind them where there are fewer."""
    x = as_trace(x)
    if x.axis:
        refuse_trace(site)
    bound = int(length) if not is_traced(length) else _room(site, 1)
    row = jnp.arange(bound)
    skipped = jnp.maximum(x.length - length, 0)
    there = (row < x.length - skipped).reshape(-1, *[1] * (x.ndim - 1))
    data = jnp.where(there, x.data[jnp.clip(row + skipped, 0, x.bound - 1)], 0)
    return data if not is_traced(length) else Trace(data, length).repeated()


@trace_rule(KeepRows)
def keep_rows(site: Site, x: Any, count: Any, length: Any) -> Any:
    """The first ``count`` rows, zeros behind them; with ``last`` the last ones, zeros before them."""
    x = as_trace(x)
    if x.axis:
        refuse_trace(site)
    bound = int(length) if not is_traced(length) else _room(site, 2)
    row, n = jnp.arange(bound), jnp.minimum(jnp.minimum(count, length), x.length)
    place = row - (length - n) + (x.length - n) if site.op.last else row
    there = row >= length - n if site.op.last else row < n
    rows = x.data[jnp.clip(place, 0, x.bound - 1)]
    data = jnp.where(there.reshape(-1, *[1] * (x.ndim - 1)), rows, 0)
    return data if not is_traced(length) else Trace(data, length).repeated()
