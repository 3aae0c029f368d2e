"""Largest and smallest elements, with derivatives that survive recomputation by XLA.

JAX differentiates a maximum by comparing the elements with it, and divides by the number of equal ones. XLA
may recompute an element for the comparison, with a fused multiply-add, and find none equal (0 / 0), or too
few. Behind a barrier, which only the derivative has, the maximum and the comparison read one array in most
programs, but not in all with JAX 0.10: so the first of the largest elements is found by its position too.

The convention is JAX's: 1, shared among equal elements; one half for each of two equal numbers
(`loopax/kernels/kinks.py`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import TensorType

from loopax.facts.elementwise import is_elementwise
from loopax.facts.scalars import is_float
from loopax.jax_backend.staging.evaluate import Site
from loopax.numerics.arrays import Array

_DEPTH = 4  # most ops between a maximum and the ops that stop derivatives


def has_no_derivative(site: Site, v: Variable, depth: int = _DEPTH) -> bool:
    """Whether no reader of ``v`` has a derivative, so that its operands need none."""
    plan = site.frame.plan
    readers = plan.readers.get(v, ())
    return v not in plan.outputs and all(
        isinstance(node.op, DisconnectedGrad | ZeroGrad)
        or all(isinstance(u.type, TensorType) and not is_float(u) for u in node.outputs)
        or (
            depth > 0
            and (is_elementwise(node) or isinstance(node.op, DimShuffle))
            and all(has_no_derivative(site, u, depth - 1) for u in node.outputs)
        )
        for node in readers
    )


def largest(x: Array, axis: tuple[int, ...] | None) -> jax.Array:
    """``x.max(axis)``."""
    return _extreme(x, axis, True) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.max(x, axis)


def smallest(x: Array, axis: tuple[int, ...] | None) -> jax.Array:
    """``x.min(axis)``."""
    return _extreme(x, axis, False) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.min(x, axis)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _extreme(x: Array, axis: tuple[int, ...] | None, is_largest: bool) -> jax.Array:
    return (jnp.max if is_largest else jnp.min)(x, axis=axis)


@_extreme.defjvp
def _extreme_jvp(
    axis: tuple[int, ...] | None,
    is_largest: bool,
    primals: tuple[jax.Array, ...],
    tangents: tuple[jax.Array, ...],
) -> Any:
    x = jax.lax.optimization_barrier(primals[0])
    extreme = _extreme(x, axis, is_largest)
    along = tuple(range(x.ndim)) if axis is None else axis
    whole = jnp.expand_dims(extreme, along)
    is_number = whole == whole
    chosen = (x == whole) | (is_number & _is_first_extreme(x, along, is_largest))
    weights = jnp.where(chosen, 1.0, 0.0).astype(x.dtype)
    share = weights / weights.sum(axis=along, keepdims=True)
    return extreme, (tangents[0] * share).sum(axis=along)


def _is_first_extreme(x: Array, along: tuple[int, ...], is_largest: bool) -> jax.Array:
    """A mask of the first extreme element along the axes, in their order."""
    order = [*(k for k in range(x.ndim) if k not in along), *along]
    moved = x.transpose(order)
    kept = moved.shape[: x.ndim - len(along)]
    flat = moved.reshape(*kept, math.prod(moved.shape[len(kept) :]))
    find = jnp.argmax if is_largest else jnp.argmin
    first = find(flat, axis=-1, keepdims=True)
    places = jax.lax.broadcasted_iota(first.dtype, flat.shape, len(kept))
    back = [order.index(k) for k in range(x.ndim)]
    return (places == first).reshape(moved.shape).transpose(back)
