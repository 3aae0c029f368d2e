"""Ops that pick, write, join and make rows of a `Trace`.

Each computes which row goes where, in numbers that JAX traces, within an array of known length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Join, MakeVector, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, Shape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from loopax.ir import FitRows
from loopax.ir.rows import KeepRows
from loopax.jax_backend.evaluate import Site, refuse_trace
from loopax.jax_backend.lengths import known_range
from loopax.jax_backend.registry import trace_rule
from loopax.jax_backend.static import is_traced, no_number
from loopax.jax_backend.trace import Trace, as_trace


@trace_rule(Subtensor)
def subtensor(site: Site, x: Any, *indices: Any) -> Any:
    at = _place(site, x, indices)
    x = _leading(x, at.axis)
    if isinstance(at.first, slice):
        start, step, length = _slice(at.first, x.length)
        found = x.taken(start + step * jnp.arange(_most_rows(at.first, x.bound)), length)
        return Trace(
            jnp.moveaxis(found.data[(slice(None), *at.rest)], 0, at.found), length, at.found
        )
    k = jnp.where(at.first < 0, at.first + x.length, at.first)
    row = x.data[jnp.clip(k, 0, x.bound - 1)][at.rest]
    return jnp.where((k >= 0) & (k < x.length), row, no_number(row.dtype))


@trace_rule(IncSubtensor)
def inc_subtensor(site: Site, x: Any, y: Any, *indices: Any) -> Any:
    at = _place(site, x, indices)
    x = _leading(x, at.axis)
    if isinstance(at.first, slice):
        start, step, length = _slice(at.first, x.length)
        bound = _most_rows(at.first, x.bound)
        rows = jnp.where(jnp.arange(bound) < length, start + step * jnp.arange(bound), x.bound)
        ndim = x.ndim - sum(isinstance(k, int) for k in at.rest)
        y, legal = _written(site, y, ndim, at.found, length, bound)
        y = jnp.where(legal, y, no_number(x.dtype))
    else:
        k = jnp.where(at.first < 0, at.first + x.length, at.first)
        legal = (k >= 0) & (k < x.length)
        rows, y = jnp.where(legal, k, x.bound), jnp.where(legal, y, no_number(x.dtype))
        x = Trace(jnp.where(legal, x.data, no_number(x.dtype)), x.length)
    place = x.data.at[(rows, *at.rest)]
    y = jnp.asarray(y, x.dtype)
    data = place.set(y, mode="drop") if site.op.set_instead_of_inc else place.add(y, mode="drop")
    found = Trace(data, x.length).repeated()
    return Trace(jnp.moveaxis(found.data, 0, at.axis), x.length, at.axis)


@dataclass(frozen=True)
class _Place:
    """An index: ``axis`` of the array, along which the rows lie, is indexed by ``first``.

    The other axes, in their order, are indexed by ``rest``, whose numbers are known. The rows that a
    slice takes lie along the axis ``found`` of the result.
    """

    axis: int
    first: Any
    rest: tuple[Any, ...]
    found: int


def _place(site: Site, x: Any, flat: Any) -> _Place:
    given = indices_from_subtensor(flat, site.op.idx_list)
    ndim = x.ndim if isinstance(x, Trace) else np.ndim(x)
    entries = [*given, *[slice(None)] * (ndim - len(given))]
    open_axes = [
        k for k, e in enumerate(entries) if any(map(is_traced, jax.tree.leaves(_parts(e))))
    ]
    axis = x.axis if isinstance(x, Trace) else (open_axes or [0])[0]
    if any(k != axis for k in open_axes):
        refuse_trace(site)
    first = entries.pop(axis)
    rest = [slice(*_parts(e)) if isinstance(e, slice) else int(e) for e in entries]
    return _Place(axis, first, tuple(rest), sum(isinstance(e, slice) for e in rest[:axis]))


def _leading(x: Any, axis: int) -> Trace:
    """The same with its rows along the first axis."""
    x = as_trace(x, axis)
    return Trace(jnp.moveaxis(x.data, axis, 0), x.length) if axis else x


def _written(site: Site, y: Any, ndim: int, axis: int, length: Any, bound: int) -> tuple[Any, Any]:
    """What is written to ``length`` rows along ``axis``, with room for ``bound``; whether it fits.

    Its rows are along the first axis of what is returned.
    """
    legal: Any = True
    missing = ndim - _rank(y)
    if isinstance(y, Trace):
        if y.axis + missing != axis:
            refuse_trace(site)
        legal, y = y.length == length, y.fitted(bound).data
    elif axis >= missing and np.shape(y)[axis - missing] != 1:
        y = as_trace(jnp.asarray(y), axis - missing)
        legal, y = length == y.length, y.fitted(bound).data
    y = jnp.asarray(y)
    return jnp.moveaxis(y.reshape(*[1] * missing, *y.shape), axis, 0), legal


def _rank(x: Any) -> int:
    return x.ndim if isinstance(x, Trace) else np.ndim(x)


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


@trace_rule(Split)
def split(site: Site, x: Any, *given: Any) -> Any:
    """The pieces of a join, whose gradient this is: a piece of known length is an array."""
    # Since 3.3 the axis is no input.
    axis = int(site.op.axis if hasattr(site.op, "axis") else site.static(1)) % _rank(x)
    parts = _lengths(site, site.node.inputs[-1])
    if isinstance(x, Trace) and x.axis != axis:
        if any(p.known is None for p in parts):
            refuse_trace(site)
        ends = np.cumsum([p.known for p in parts])[:-1]
        return [Trace(d, x.length, x.axis) for d in jnp.split(x.data, ends, axis)]
    x = as_trace(x, axis)
    total = sum(p.value for p in parts)
    x = Trace(jnp.where(total == x.length, x.data, no_number(x.dtype)), x.length, axis)
    begin, pieces = 0, []
    for p in parts:
        if p.known is not None:
            pieces.append(x.taken(begin + jnp.arange(p.known), p.known).data)
        else:
            room = x.bound if p.most is None else min(p.most, x.bound)
            pieces.append(x.taken(begin + jnp.arange(room), p.value))
        begin = begin + p.value
    return pieces


@trace_rule(Reshape)
def reshape(site: Site, x: Trace, shape: Any) -> Any:
    """Rows of another shape: the entries that count stay the first ones."""
    if not isinstance(x, Trace):
        refuse_trace(site)
    asked = _lengths(site, site.node.inputs[1])
    axis = _same_axis(x, [p.known for p in asked])
    if axis is not None:
        shape = [x.bound if k == axis else p.known for k, p in enumerate(asked)]
        legal = x.length == asked[axis].value if asked[axis].known is None else True
        data = x.data.reshape(shape)
        return Trace(jnp.where(legal, data, no_number(data.dtype)), x.length, axis)
    first, *others = asked
    if x.axis:
        return _one_after_the_other(site, x, first, [p.known for p in others])
    if first.known is not None and others and others[0].known is None:
        return _in_blocks(site, x, first.known, others[0], [p.known for p in others[1:]])
    rest = [p.known for p in others]
    if any(n in (None, -1, 0) for n in rest) or 0 in x.data.shape:
        refuse_trace(site)
    row, width = (int(np.prod(shape, dtype=int)) for shape in (rest, x.data.shape[1:]))
    count = x.length * width
    length = count // row if first.known == -1 else first.value
    flat = Trace(x.data.reshape(-1), count)
    is_open = first.known in (None, -1)
    room = -(-flat.bound // row) if is_open else first.known
    data = flat.taken(jnp.arange(room * row), count).data.reshape(room, *rest)
    data = jnp.where(length * row == count, data, no_number(data.dtype))
    return Trace(data, length) if is_open else data


def _one_after_the_other(site: Site, x: Trace, first: _Length, rest: list[int | None]) -> Trace:
    """Several blocks of rows as one: what PyTensor makes of ``pt.concatenate([x, x])``."""
    before, behind = x.data.shape[: x.axis], x.data.shape[x.axis + 1 :]
    if None in rest or np.prod(rest, dtype=int) != np.prod(behind, dtype=int) or not x.bound:
        refuse_trace(site)
    blocks = int(np.prod(before, dtype=int))
    row, each = jnp.arange(blocks * x.bound), jnp.maximum(x.length, 1)
    legal = (first.value == blocks * x.length) | (first.known == -1)
    flat = Trace(x.data.reshape(-1, *rest), blocks * x.bound)
    found = flat.taken(row // each * x.bound + row % each, blocks * x.length)
    return Trace(jnp.where(legal, found.data, no_number(found.dtype)), found.length)


def _in_blocks(site: Site, x: Trace, blocks: int, each: _Length, rest: list[int | None]) -> Trace:
    """The other way round: each block has as many rows."""
    if blocks < 1 or x.data.shape[1:] != tuple(rest) or not x.bound:
        refuse_trace(site)
    room = x.bound // blocks
    row = jnp.arange(blocks)[:, None] * each.value + jnp.arange(room)
    data = x.data[jnp.clip(row, 0, x.bound - 1)]
    data = jnp.where(x.length == blocks * each.value, data, no_number(data.dtype))
    return Trace(data, each.value, 1).repeated()


def _same_axis(x: Trace, known: list[int | None]) -> int | None:
    """The axis of the result along which the rows lie as they did; None where there is none."""
    open_axes = [k for k, n in enumerate(known) if n in (None, -1)]
    if len(open_axes) != 1:
        return None
    (axis,) = open_axes
    sides = (known[:axis], x.data.shape[: x.axis]), (known[axis + 1 :], x.data.shape[x.axis + 1 :])
    same = all(np.prod(new, dtype=int) == np.prod(old, dtype=int) for new, old in sides)
    return axis if same else None


@dataclass(frozen=True)
class _Length:
    """A length that a node asks for: ``known`` while JAX traces, or at ``most`` something."""

    known: int | None
    value: Any
    most: int | None


def _lengths(site: Site, v: Any) -> list[_Length]:
    """The lengths that the vector ``v`` is made of."""
    op, inputs = (None, ()) if v.owner is None else (v.owner.op, v.owner.inputs)
    if isinstance(op, MakeVector):
        return [_length(site, u) for u in inputs]
    if isinstance(op, Elemwise) and len(inputs) == 1:  # a cast
        return _lengths(site, inputs[0])
    if isinstance(op, DimShuffle) and inputs[0].type.ndim == 0:
        return [_length(site, inputs[0])]
    if isinstance(op, Join):
        parts = inputs[0 if hasattr(op, "axis") else 1 :]
        return [n for p in parts for n in _lengths(site, p)]
    if isinstance(op, Shape) and isinstance(x := site.frame.read(inputs[0]), Trace):
        found = [_Length(n, n, n) for n in x.data.shape]
        found[x.axis] = _Length(None, x.length, x.bound)
        return found
    if is_traced(site.frame.read(v)):
        refuse_trace(site)
    return [_Length(int(n), int(n), int(n)) for n in np.asarray(site.frame.read(v))]


def _length(site: Site, v: Any) -> _Length:
    known, found = _known(site, v), known_range(site.frame, v)
    most = None if found is None else max(found[1], 0)
    return _Length(known, site.frame.read(v) if known is None else known, most)


@trace_rule(Alloc)
def alloc(site: Site, value: Any, *lengths: Any) -> Any:
    return _filled(site, value, [(k, x) for k, x in enumerate(lengths)], skipped=1)


@trace_rule(AllocEmpty)
def alloc_empty(site: Site, *lengths: Any) -> Any:
    zero = np.zeros((), site.out.type.dtype)
    return _filled(site, zero, [(k, x) for k, x in enumerate(lengths)], skipped=0)


def _filled(site: Site, value: Any, lengths: Any, skipped: int) -> Any:
    """An array with one length that is only known when the program runs."""
    known = [_known(site, site.node.inputs[skipped + k]) for k, _ in lengths]
    open_axes = [k for k, n in enumerate(known) if n is None]
    if not open_axes:  # lengths across the rows of a trace
        return jnp.broadcast_to(jnp.asarray(value), tuple(known))
    if len(open_axes) > 1:
        refuse_trace(site)
    (axis,) = open_axes
    length = jnp.maximum(lengths[axis][1], 0)
    bound = _room(site, skipped + axis)
    shape = tuple(bound if n is None else n for n in known)
    if not isinstance(value, Trace):
        own = np.ndim(value) - (len(shape) - axis)
        if own >= 0 and np.shape(value)[own] != 1:
            refuse_trace(site)
        return Trace(jnp.broadcast_to(jnp.asarray(value), shape), length, axis)
    if value.axis != axis - (len(shape) - value.ndim):
        refuse_trace(site)
    data = jnp.broadcast_to(value.fitted(bound).data, shape)
    return Trace(jnp.where(value.length == length, data, no_number(data.dtype)), length, axis)


def _known(site: Site, v: Any) -> int | None:
    """The value of the integer ``v`` where it is known: also of a length, of a trace, across its rows."""
    x = site.frame.read(v)
    if not is_traced(x):
        return int(x)
    found = known_range(site.frame, v)
    return found[0] if found is not None and found[0] == found[1] else None


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
