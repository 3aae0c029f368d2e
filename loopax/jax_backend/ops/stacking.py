"""Joining and splitting along an axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor.basic import Join, Split

from loopax.base.upstream.pytensor import joined_by
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array


def axis_of(site: Site) -> int:
    """The nonnegative axis of a Join or a Split; since 3.3 it is not an input."""
    if hasattr(site.op, "axis"):
        axis = site.op.axis
    else:
        axis = site.static(1 if isinstance(site.op, Split) else 0)
    return int(axis) % site.out.type.ndim


@rule(Join)
def join(site: Site, *values: Array) -> jax.Array:
    axis = axis_of(site)
    arrays = [jnp.asarray(x, site.out.type.dtype) for x in joined_by(site.op, values)]
    some = [x for x in arrays if x.shape[axis]] or arrays[:1]
    if len(some) < len(arrays):
        # All lengths except along the axis must match, for empty arrays too.
        jnp.broadcast_shapes(*(x.shape[:axis] + x.shape[axis + 1 :] for x in arrays))
    return jnp.concatenate(some, axis=axis) if len(some) > 1 else some[0]


@rule(Split)
def split(site: Site, x: Array, *arguments: Array) -> Any:
    axis = axis_of(site)
    sizes = np.asarray(site.static(len(arguments)))
    if len(sizes) != len(site.node.outputs):
        raise ValueError(
            f"Split got {len(sizes)} sizes, {sizes.tolist()}, for {len(site.node.outputs)} parts."
        )
    if (sizes < 0).any():
        raise ValueError(f"Split got the negative size in {sizes.tolist()}.")
    if sizes.sum() != x.shape[axis]:
        raise ValueError(
            f"Split sizes {sizes.tolist()} do not add up to {x.shape[axis]}, the length of axis {axis}."
        )
    return tuple(jnp.split(x, np.cumsum(sizes[:-1]), axis=axis))
