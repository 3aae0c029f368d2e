"""Reductions along axes: sums, products, extrema."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytensor.scalar as ps
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.math import MulWithoutZeros

from loopax.facts.axes import raises_of_nothing
from loopax.jax_backend.ops.extrema import has_no_derivative, largest, smallest
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.leaf import convert_leaf
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array


def _product_of_nonzero(x: Array, axis: tuple[int, ...] | None) -> jax.Array:
    """The product of the nonzero elements, 1 if there are none: the derivative of a product with one 0."""
    return _prod(jnp.where(x != 0, x, 1), axis=axis)


# These keep the dtype of the operand.
_sum = partial(jnp.sum, promote_integers=False)
_prod = partial(jnp.prod, promote_integers=False)

_REDUCERS: dict[type, Any] = {
    ps.Add: _sum,
    ps.Mul: _prod,
    ps.ScalarMaximum: largest,
    ps.ScalarMinimum: smallest,
    ps.AND: jnp.all,
    ps.OR: jnp.any,
    MulWithoutZeros: _product_of_nonzero,
}


@rule(CAReduce)
def reduce(site: Site, x: Array) -> Any:
    """Reduce in the accumulator's dtype from the start: ``int8`` sums do not wrap around in PyTensor."""
    op = site.op
    x = jnp.asarray(x)
    scalar_op = op.scalar_op
    reducer = _REDUCERS.get(type(scalar_op))
    if reducer is None or (reducer in (jnp.all, jnp.any) and x.dtype != bool):
        return _bitwise(op, x) if type(scalar_op) in _BITWISE else convert_leaf(site, x)
    axis = None if op.axis is None else tuple(int(a) for a in op.axis)
    if axis == ():
        return x
    dtype = getattr(op, "acc_dtype", None) or site.out.type.dtype
    if reducer in (_sum, _prod, _product_of_nonzero):
        x = _as_dtype(x, dtype)
        return _as_dtype(reducer(x, axis=axis), site.out.type.dtype)
    if reducer in (largest, smallest) and has_no_derivative(site, site.out):
        x = jax.lax.stop_gradient(x)
    if reducer in (largest, smallest) and not raises_of_nothing(op):
        lengths = x.shape if axis is None else [x.shape[a] for a in axis]
        if any(not isinstance(n, int) or n == 0 for n in lengths):
            plain = jnp.max if reducer is largest else jnp.min
            return plain(x, axis=axis, initial=op.initial_value(x.dtype))
    return reducer(x, axis=axis)


def _as_dtype(x: jax.Array, dtype: str) -> jax.Array:
    """Cast ``x`` to ``dtype``, or to its replacement in JAX's 32-bit mode."""
    return x if x.dtype == dtype else x.astype(jax.dtypes.canonicalize_dtype(dtype))


# The function and its neutral element.
_BITWISE: dict[type, tuple[Any, int]] = {
    ps.AND: (jax.lax.bitwise_and, -1),
    ps.OR: (jax.lax.bitwise_or, 0),
    ps.XOR: (jax.lax.bitwise_xor, 0),
}


def _bitwise(op: CAReduce, x: Array) -> Any:
    function, start = _BITWISE[type(op.scalar_op)]
    axes = tuple(range(x.ndim)) if op.axis is None else tuple(int(a) for a in op.axis)
    return jax.lax.reduce(x, jnp.asarray(start).astype(x.dtype), function, axes)
