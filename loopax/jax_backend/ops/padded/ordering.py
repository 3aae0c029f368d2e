"""Sorting, searching and distinct values of a `PaddedArray`; distinct values of traced arrays.

The padding sorts last, as NaN or as the largest number, in a stable sort.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.extra_ops import SearchsortedOp, Unique
from pytensor.tensor.sort import ArgSortOp, SortOp

from loopax.jax_backend.ops.padded.masked import greatest
from loopax.jax_backend.ops.sorting import sorted_axis
from loopax.jax_backend.staging.evaluate import Site, convert_arrays, refuse_trace
from loopax.jax_backend.staging.registry import trace_rule
from loopax.jax_backend.values.padded_array import AnyArray, PaddedArray, as_padded


def _last(dtype: np.dtype) -> Any:
    return np.nan if jnp.issubdtype(dtype, jnp.inexact) else greatest(dtype)


@trace_rule(SortOp, ArgSortOp)
def sort(site: Site, x: PaddedArray, *axis: AnyArray) -> Any:
    along = sorted_axis(site)
    if along is None:
        x = x.raveled()
    if along is not None and along % x.ndim != x.axis:
        return x.with_data(convert_arrays(site, [x.data, *axis])[0])
    order = jnp.sort if isinstance(site.op, SortOp) else jnp.argsort
    ordered = order(x.masked(_last(x.dtype)), axis=x.axis, stable=True)
    return x.with_data(ordered).repeated()


@trace_rule(SearchsortedOp)
def searchsorted(site: Site, a: AnyArray, v: AnyArray, *sorter: AnyArray) -> Any:
    """The position of each row of ``v`` in ``a``, whose padding is ignored."""
    if any(isinstance(s, PaddedArray) for s in sorter) or (sorter and isinstance(a, PaddedArray)):
        refuse_trace(site)
    among = a.masked(_last(a.dtype)) if isinstance(a, PaddedArray) else a
    sought = v.data if isinstance(v, PaddedArray) else v
    (places,) = convert_arrays(site, [among, sought, *sorter])
    if isinstance(a, PaddedArray):
        places = jnp.minimum(places, a.length)
    return v.with_data(places) if isinstance(v, PaddedArray) else places


@trace_rule(Unique)
def unique(site: Site, x: AnyArray, *axis: AnyArray) -> Any:
    """The distinct elements: at most as many as there are; the padding repeats the last and adds none."""
    op = site.op
    if op.axis is not None and np.ndim(x) != 1:
        refuse_trace(site)
    rows = as_padded(x).raveled() if isinstance(x, PaddedArray) else as_padded(jnp.ravel(x))
    n = rows.bound
    values, first, inverse = jnp.unique(
        rows.data, return_index=True, return_inverse=True, size=n, fill_value=0
    )
    inverse = inverse.reshape(-1)
    count = jnp.where(rows.length > 0, jnp.max(inverse, initial=-1) + 1, 0)
    outs = [PaddedArray(values, count).repeated()]
    if op.return_index:
        outs.append(PaddedArray(first, count).repeated())
    if op.return_inverse:
        outs.append(PaddedArray(inverse, rows.length) if isinstance(x, PaddedArray) else inverse)
    if op.return_counts:
        there = (jnp.arange(n) < rows.length).astype(site.node.outputs[-1].type.dtype)
        counts = jax.ops.segment_sum(there, inverse, n)
        outs.append(PaddedArray(counts, count).repeated())
    return outs
