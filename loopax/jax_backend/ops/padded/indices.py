"""Arrays of indices that read and write rows of a `PaddedArray`, and indices that are one themselves.

Index arrays for the first axes go together, as NumPy has it: ``x[i, j]`` is one entry for each pair.
One that indexes another axis than that of the rows is applied to each row. A mask is the places where
it is true.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)

from loopax.ir.compat import AdvancedIncSubtensor1, AdvancedSubtensor1
from loopax.jax_backend.ops.indexing.index import check_mask_fits
from loopax.jax_backend.staging.evaluate import Site, convert_arrays, refuse_trace
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.staging.static import is_traced, or_no_number
from loopax.jax_backend.values.padded_array import PaddedArray, as_padded, places_of


@trace_rule(AdvancedSubtensor1, AdvancedSubtensor)
def read(site: Site, x: Any, *values: Any) -> Any:
    index = _arrays(site, x, values)
    if index is None:
        axis = _axis_of_each_row(site, x, values)
        (data,) = convert_arrays(site, [x.data, *values])
        # The index stands where its axis was, with as many axes as it has.
        more = next(np.ndim(v) for v in values if v is not None and np.ndim(v)) - 1
        return PaddedArray(data, x.length, x.axis + (more if axis < x.axis else 0))
    if _of_each_row(x, index):
        (data,) = convert_arrays(site, [x.data, *values])
        return PaddedArray(data, x.length, x.axis - len(index) + max(map(np.ndim, index)))
    x = _along_the_first(site, x)
    entries, legal, length = _positions(site, index, x)
    found = x.data[entries]
    legal = legal.reshape(*legal.shape, *[1] * (found.ndim - legal.ndim))
    found = or_no_number(legal, found)
    return found if length is None else PaddedArray(found, length)


@trace_rule(AdvancedIncSubtensor1, AdvancedIncSubtensor)
def write(site: Site, x: Any, y: Any, *values: Any) -> Any:
    index = _arrays(site, x, values)
    if index is None or _of_each_row(x, index):
        if index is None:
            _axis_of_each_row(site, x, values)
        if isinstance(y, PaddedArray):
            y = y.fitted(x.bound).data
        elif np.ndim(y) == x.ndim and np.shape(y)[x.axis] != 1:
            refuse_trace(site)
        return x.with_data(convert_arrays(site, [x.data, y, *values])[0])
    is_trace = isinstance(x, PaddedArray)
    x = _along_the_first(site, x)
    entries, legal, length = _positions(site, index, x)
    behind = jnp.zeros(legal.shape, bool)
    fits: Any = True
    if length is not None:
        behind = jnp.arange(legal.shape[0]) >= length
        if (
            isinstance(y, PaddedArray)
            or np.ndim(y) == 1 + x.ndim - len(index)
            and not site.node.inputs[1].type.broadcastable[0]
        ):
            y = as_padded(y)
            fits, y = y.length == length, y.fitted(legal.shape[0]).data
    elif isinstance(y, PaddedArray):
        refuse_trace(site)
    fits &= jnp.all(legal | behind)
    # What does not count is written outside, where it is dropped.
    rows = jnp.where(behind, x.bound, jnp.broadcast_to(entries[0], legal.shape))
    place = x.data.at[(rows, *entries[1:])]
    y = jnp.asarray(y, x.dtype)
    data = place.set(y, mode="drop") if site.op.set_instead_of_inc else place.add(y, mode="drop")
    found = PaddedArray(or_no_number(fits, data), x.length)
    return found.repeated() if is_trace else found.data


@trace_rule(Nonzero)
def nonzero(site: Site, x: Any) -> Any:
    return places_of(x.masked(0) if isinstance(x, PaddedArray) else x)


def _arrays(site: Site, x: Any, values: Any) -> list[Any] | None:
    """The index where it is arrays of integers for the first axes, and nothing for the others."""
    entries = _entries(site, x, values)
    while entries and _is_all(entries[-1]):
        entries.pop()
    if any(isinstance(e, slice) for e in entries):
        return None
    return entries


def _entries(site: Site, x: Any, values: Any) -> list[Any]:
    """The index, its masks as the places where they are true."""
    # AdvancedSubtensor1 of PyTensor 3.0 has one index, and no list of them.
    entries = indices_from_subtensor(values, getattr(site.op, "idx_list", None) or (0,))
    found: list[Any] = []
    for e in entries:
        if e is None:
            refuse_trace(site)
        if isinstance(e, slice) or np.dtype(e.dtype).kind != "b":
            found.append(e)
            continue
        if not isinstance(e, PaddedArray) and not isinstance(x, PaddedArray):
            check_mask_fits(site, e, len(found), np.shape(x))
        if isinstance(e, PaddedArray) or is_traced(e):
            found += places_of(e.masked(False) if isinstance(e, PaddedArray) else e)
        else:
            found += np.nonzero(e)
    return found


def _is_all(e: Any) -> bool:
    return isinstance(e, slice) and e == slice(None)


def _axis_of_each_row(site: Site, x: Any, values: Any) -> int:
    """Which axis is indexed, where that is one, by an array, and not the one of the rows."""
    entries = _entries(site, x, values)
    axes = [k for k, e in enumerate(entries) if not _is_all(e)]
    if len(axes) != 1 or not isinstance(x, PaddedArray) or axes[0] == x.axis:
        refuse_trace(site)
    if isinstance(entries[axes[0]], slice | PaddedArray):
        refuse_trace(site)
    return axes[0]


def _of_each_row(x: Any, index: list[Any]) -> bool:
    """Whether arrays of indices leave the axis of the rows alone."""
    return (
        isinstance(x, PaddedArray)
        and x.axis >= len(index)
        and not any(isinstance(k, PaddedArray) for k in index)
    )


def _along_the_first(site: Site, x: Any) -> PaddedArray:
    if isinstance(x, PaddedArray) and x.axis:
        refuse_trace(site)
    return as_padded(x)


def _positions(site: Site, index: list[Any], x: PaddedArray) -> tuple[tuple[Any, ...], Any, Any]:
    """The index within the room of ``x``, which of its entries were within the rows, and their number.

    That number is None where the index has a shape that is known.
    """
    traces = [k for k in index if isinstance(k, PaddedArray)]
    length = None
    if traces:
        if any(k.axis or k.ndim != 1 for k in traces):
            refuse_trace(site)
        length, bound = traces[0].length, min(k.bound for k in traces)
        # A number, or one row, goes with all.
        wide = [isinstance(k, PaddedArray) or (np.ndim(k) and np.shape(k)[0] != 1) for k in index]
        same = [as_padded(k).length == length for k, w in zip(index, wide, strict=True) if w]
        index = [
            as_padded(k).fitted(bound).data if w else k for k, w in zip(index, wide, strict=True)
        ]
        equal = jnp.all(jnp.stack([jnp.asarray(s) for s in same]))
    else:
        equal = jnp.asarray(True)
    lengths = [x.length, *x.data.shape[1:]]
    found, legal = [], equal
    for k, n, room in zip(index, lengths, x.data.shape, strict=False):
        k = jnp.asarray(k)
        k = jnp.where(k < 0, k + n, k)
        legal = legal & (k >= 0) & (k < n)
        found.append(jnp.clip(k, 0, max(room - 1, 0)))
    shape = np.broadcast_shapes(*[k.shape for k in found])
    return tuple(found), jnp.broadcast_to(legal, shape), length
