"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.tensor.basic import PermuteRowElements
from pytensor.tensor.extra_ops import SearchsortedOp, Unique
from pytensor.tensor.sort import ArgSortOp, SortOp

from loopax.base.errors import describe
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import no_number


def sorted_axis(site: Site) -> int | None:
    """The axis to sort along: a property since 3.3, the second input in 3.0."""
    if len(site.node.inputs) == 1:
        axis = site.op.axis
        return None if axis is None else int(axis)
    axis = site.static(1)
    return None if axis is None else int(axis)


_STABLE = "stable", "mergesort"  # as NumPy names them


@rule(SortOp)
def sort(site: Site, x: Array, *axis: Array) -> Array:
    return jnp.sort(x, axis=sorted_axis(site), stable=site.op.kind in _STABLE)


@rule(ArgSortOp)
def argsort(site: Site, x: Array, *axis: Array) -> Array:
    return jnp.argsort(x, axis=sorted_axis(site), stable=site.op.kind in _STABLE)


@rule(PermuteRowElements)
def permute_rows(site: Site, x: Array, order: Array) -> Array:
    """Permute ``x`` to ``x[order]`` along the last axis; with ``inverse``, undo that permutation."""
    for m, n, a, b in zip(
        x.shape, order.shape, *(v.type.shape for v in site.node.inputs), strict=True
    ):
        if m != n and not (m == a == 1 or n == b == 1):
            raise ValueError(
                f"{describe(site.out)} permutes rows of the shape {x.shape} by indices of the shape "
                f"{order.shape}: a length must be the same, or 1 in the type of the variable."
            )
    shape = np.broadcast_shapes(x.shape, order.shape)
    x, order = jnp.broadcast_to(x, shape), jnp.broadcast_to(order, shape)
    if not site.op.inverse:
        return jnp.take_along_axis(
            x, order, axis=-1, mode="fill", fill_value=no_number(x.dtype).item()
        )
    # A position missing in the order is NaN here; `perform` leaves it uninitialized.
    empty = jnp.full(shape, no_number(x.dtype))
    return jnp.put_along_axis(empty, order, x, axis=-1, inplace=False, mode="drop")


@rule(SearchsortedOp)
def searchsorted(site: Site, a: Array, v: Array, *sorter: Array) -> Array:
    a, v = jnp.asarray(a), jnp.asarray(v)
    if a.dtype != v.dtype:
        common = jnp.promote_types(a.dtype, v.dtype)
        a, v = a.astype(common), v.astype(common)
    order = sorter[0] if sorter else None
    return jnp.searchsorted(a, v, side=site.op.side, sorter=order)


@rule(Unique)
def unique(site: Site, x: Array, *axis: Array) -> Any:
    """The distinct elements; their number depends on the values, so these must be static."""
    op = site.op
    site.static(0)
    return jnp.unique(
        x,
        return_index=op.return_index,
        return_inverse=op.return_inverse,
        return_counts=op.return_counts,
        axis=op.axis,
    )
