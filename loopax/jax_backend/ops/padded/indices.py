"""Arrays of indices and masks that read or write a `PaddedArray`, or are themselves padded.

NumPy's rules: index arrays, and numbers beside them, are paired: ``x[i, j]`` is one entry for each pair.
Their axes are inserted at the first of them, or in front if a slice lies between two of them. A mask is
converted to the positions where it is true. Slices are applied first; the other entries then index whole
axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from loopax.base.errors import undeclared
from loopax.base.upstream.pytensor import (
    AdvancedIncSubtensor1,
    AdvancedSubtensor1,
    adds_last_only,
    indices_from_subtensor,
)
from loopax.jax_backend.ops.indexing.index import (
    check_in_bounds,
    check_mask_fits,
    from_front,
    idx_list,
)
from loopax.jax_backend.ops.padded.rows import read_part, write_part
from loopax.jax_backend.staging.evaluate import Site, refuse_trace
from loopax.jax_backend.staging.legal import or_refused, refused_rows
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.values.padded_array import (
    AnyArray,
    PaddedArray,
    as_padded,
    lengths,
    places_of,
)
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import no_number


@trace_rule(AdvancedSubtensor1, AdvancedSubtensor)
def read(site: Site, x: AnyArray, *values: AnyArray) -> AnyArray:
    slices, arrays, fits = _entries(site, x, values)
    if slices is not None:
        x = read_part(site, x, slices)
    at = _places(site, x, arrays)
    if 0 in [at.shape[k] for k in range(len(arrays))]:
        data = jnp.full(at.index_shape + at.shape[len(arrays) :], no_number(x.dtype), x.dtype)
    else:
        data = at.leading(x)[at.entries]
    legal = (at.legal | at.behind) & fits
    legal = legal.reshape(*legal.shape, *[1] * (data.ndim - legal.ndim))
    data = at.in_place(or_refused(site.context, legal, data))
    if at.padded is None:
        return data
    rows = PaddedArray(data, at.length, at.padded).filled_if_empty()
    return rows if fits is True else refused_rows(site.context, fits, rows)


@trace_rule(AdvancedIncSubtensor1, AdvancedIncSubtensor)
def write(site: Site, x: AnyArray, y: AnyArray, *values: AnyArray) -> AnyArray:
    slices, arrays, fits = _entries(site, x, values)
    part = x if slices is None else read_part(site, x, slices)
    at = _places(site, part, arrays)
    y, same = _written(site, y, at)
    fits = jnp.all(at.legal | at.behind) & same & fits
    # Padding is written out of range, where it is dropped.
    first = jnp.where(at.behind, at.shape[0], jnp.broadcast_to(at.entries[0], at.index_shape))
    place = at.leading(part).at[(first, *at.entries[1:])]
    y = jnp.asarray(y, x.dtype)
    if adds_last_only(site.op):
        y = place.get(mode="clip") + y
    data: AnyArray
    if site.op.set_instead_of_inc or adds_last_only(site.op):
        data = place.set(y, mode="drop")
    else:  # JAX does not add bools; NumPy's sum of them is `or`
        data = place.max(y, mode="drop") if x.dtype == bool else place.add(y, mode="drop")
    data = jnp.moveaxis(data, range(len(at.axes)), at.axes)
    if isinstance(part, PaddedArray):
        data = refused_rows(site.context, fits, part.with_data(data).repeated())
    else:
        data = or_refused(site.context, fits, data)
    if slices is not None:
        data = write_part(site, x, data, slices, sets=True)
    return data if isinstance(x, PaddedArray) or not isinstance(data, PaddedArray) else data.data


@trace_rule(Nonzero)
def nonzero(site: Site, x: AnyArray) -> Any:
    return places_of(x.masked(0) if isinstance(x, PaddedArray) else jnp.asarray(x))


def _entries(
    site: Site, x: AnyArray, values: Sequence[AnyArray]
) -> tuple[list[Any] | None, dict[int, Any], Any]:
    """The slices of the index, None if all are whole; its arrays, by axis; whether its masks fit.

    A mask becomes the positions where it is true, along each of its axes.
    """
    entries: list[Any] = []
    fits: Any = True
    for e in indices_from_subtensor(values, idx_list(site)):
        if e is None:
            refuse_trace(site)
        if isinstance(e, slice) or np.dtype(e.dtype).kind != "b":
            entries.append(e)
            continue
        fits = fits & _mask_fits(site, e, len(entries), x)
        if isinstance(e, PaddedArray) or is_traced(e):
            entries += places_of(e.masked(False) if isinstance(e, PaddedArray) else e)
        else:
            entries += np.nonzero(e)
    whole = slice(None)
    slices = [e if isinstance(e, slice) else whole for e in entries]
    arrays = {k: e for k, e in enumerate(entries) if not isinstance(e, slice)}
    return (None if all(s == whole for s in slices) else slices), arrays, fits


def _mask_fits(site: Site, mask: AnyArray, axis: int, x: AnyArray) -> Any:
    """Whether ``mask``, which begins at ``axis``, has the lengths of ``x``, some known only at run time.

    Raises IndexError if it is known not to.
    """
    if not isinstance(mask, PaddedArray) and not isinstance(x, PaddedArray):
        check_mask_fits(site, mask, axis, np.shape(x))
        return True
    of_mask, of_x = lengths(mask), lengths(x)[axis : axis + np.ndim(mask)]
    return jnp.all(jnp.stack([jnp.asarray(n == m) for n, m in zip(of_mask, of_x, strict=True)]))


@dataclass(frozen=True)
class _Places:
    """Entries of an array at index arrays along its ``axes``, which are moved to the front.

    ``shape`` is the shape with these axes in front, padding included; ``entries`` lie within it, and
    ``legal`` says which of them were in range. The result has axes of ``index_shape`` in place of ``axes``,
    from ``begin`` on. Along its axis ``padded`` it has ``length`` rows; ``index_axis`` is the same axis
    within the index, if it belongs to the index.
    """

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    entries: tuple[Any, ...]
    legal: Any
    index_shape: tuple[int, ...]
    begin: int
    length: Any
    padded: int | None
    index_axis: int | None

    def leading(self, x: AnyArray) -> jax.Array:
        data = x.data if isinstance(x, PaddedArray) else jnp.asarray(x)
        return jnp.moveaxis(data, self.axes, range(len(self.axes)))

    @property
    def behind(self) -> Any:
        """A mask of the entries past the end of the index."""
        if self.index_axis is None:
            return jnp.asarray(False)
        behind = jnp.arange(self.index_shape[self.index_axis]) >= self.length
        return behind.reshape(-1, *[1] * (len(self.index_shape) - self.index_axis - 1))

    @property
    def _of_index(self) -> tuple[range, range]:
        n = len(self.index_shape)
        return range(n), range(self.begin, self.begin + n)

    def in_place(self, data: Array) -> jax.Array:
        """Move the axes of the index from the front of ``data`` to their place in the result."""
        return jnp.moveaxis(data, *self._of_index)

    def in_front(self, data: Array) -> jax.Array:
        return jnp.moveaxis(data, *self._of_index[::-1])


def _places(site: Site, x: AnyArray, arrays: dict[int, Any]) -> _Places:
    axes = tuple(arrays)
    others = [k for k in range(np.ndim(x)) if k not in arrays]
    of_x, room = lengths(x), np.shape(x.data if isinstance(x, PaddedArray) else x)
    index, length, from_end, legal = _together(site, list(arrays.values()))
    entries: list[Any] = []
    for axis, k in zip(axes, index, strict=True):
        n = of_x[axis]
        if not is_traced(k) and not is_traced(n):
            check_in_bounds(site, np.asarray(k), axis, n)
        k = from_front(k, n)
        legal = legal & (k >= 0) & (k < n)
        entries.append(jnp.clip(k, 0, max(room[axis] - 1, 0)))
    index_shape = np.broadcast_shapes(*[k.shape for k in entries])
    legal = jnp.broadcast_to(legal, index_shape)
    together = axes == tuple(range(axes[0], axes[0] + len(axes)))
    begin = sum(k < axes[0] for k in others) if together else 0
    index_axis = None if from_end is None else len(index_shape) - from_end
    padded = None if index_axis is None else begin + index_axis
    if isinstance(x, PaddedArray) and x.axis in others:
        if padded is not None:
            refuse_trace(site)
        place = others.index(x.axis)
        padded, length = place + (len(index_shape) if place >= begin else 0), x.length
    shape = tuple(room[k] for k in (*axes, *others))
    return _Places(
        axes, shape, tuple(entries), legal, index_shape, begin, length, padded, index_axis
    )


def _together(site: Site, index: list[Any]) -> tuple[list[Any], Any, int | None, Any]:
    """Fit index arrays to one length; return them, that length, its axis from the end, and if all agree.

    The length and the axis are None if no array is a `PaddedArray`.
    """
    traces = [k for k in index if isinstance(k, PaddedArray)]
    if not traces:
        return index, None, None, True
    from_end = traces[0].ndim - traces[0].axis
    if any(k.ndim - k.axis != from_end for k in traces):
        refuse_trace(site)
    length, bound = traces[0].length, min(k.bound for k in traces)
    same, arrays = [], []
    for k in index:
        # A number, or a single row, is broadcast to all rows.
        axis = np.ndim(k) - from_end if not isinstance(k, PaddedArray) else k.axis
        if isinstance(k, PaddedArray) or (axis >= 0 and np.shape(k)[axis] != 1):
            k = as_padded(k, axis)
            same.append(jnp.asarray(k.length == length))
            k = k.fitted(bound).data
        arrays.append(k)
    return arrays, length, from_end, jnp.all(jnp.stack(same))


def _written(site: Site, y: AnyArray, at: _Places) -> tuple[Any, Any]:
    """The values to write, with the axes of the index in front, and whether their number fits."""
    shape = at.in_place(np.empty(at.index_shape + at.shape[len(at.axes) :], bool)).shape
    missing = len(shape) - np.ndim(y)
    if missing < 0:
        refuse_trace(site)
    declared = site.node.inputs[1].type.broadcastable
    same: Any = True
    if at.padded is not None and at.padded >= missing:
        axis = at.padded - missing
        if isinstance(y, PaddedArray) and y.axis != axis:
            refuse_trace(site)
        if isinstance(y, PaddedArray) or not declared[axis]:
            y = as_padded(y, axis)
            same, y = y.length == at.length, y.fitted(shape[at.padded]).data
    elif isinstance(y, PaddedArray):
        refuse_trace(site)
    for k, n in enumerate(np.shape(y)):
        if n == 1 and not declared[k] and k + missing != at.padded and shape[k + missing] != 1:
            raise ValueError(undeclared(k, site.node.inputs[1], site.op))
    y = jnp.asarray(y)
    return at.in_front(y.reshape(*[1] * missing, *y.shape)), same
