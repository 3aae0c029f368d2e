"""Shapes, and ops whose result has a shape given by values."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from pytensor.compile.ops import TypeCastingOp
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    Eye,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.extra_ops import (
    FillDiagonal,
    FillDiagonalOffset,
    RavelMultiIndex,
    Repeat,
    UnravelIndex,
)
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from loopax.base.errors import describe
from loopax.base.upstream.jax import InconclusiveDimensionOperation as Inconclusive
from loopax.ir import FitRows, KeepRows
from loopax.ir.ops.rows import fit_rows
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.staging.static import is_traced
from loopax.jax_backend.staging.symbolic import as_length, as_lengths, is_symbolic, static_lengths
from loopax.numerics.arrays import Array
from loopax.numerics.no_number import or_no_number


def _dims(site: Site, first: int, count: int) -> tuple[int, ...]:
    return tuple(as_length(site.static(first + k)) for k in range(count))


@rule(Shape)
def shape(site: Site, x: Array) -> Array:
    return static_lengths(jnp.shape(x))


@rule(Shape_i)
def shape_i(site: Site, x: Array) -> Array:
    return static_lengths([jnp.shape(x)[site.op.i]]).reshape(())


@rule(FillDiagonal)
def fill_diagonal(site: Site, x: Array, value: Array) -> Array:
    """Fill the main diagonal; PyTensor's conversion fills diagonals of matrices in three axes (3.3.8)."""
    x = jnp.asarray(x)
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ValueError(
            f"fill_diagonal got an array of shape {x.shape}, but its lengths must be equal."
        )
    places = jnp.arange(min(x.shape))
    return x.at[(places,) * x.ndim].set(value)


@rule(SpecifyShape)
def specify_shape(site: Site, x: Array, *dims: ArrayLike) -> Array:
    for axis, (n, dim) in enumerate(zip(jnp.shape(x), dims, strict=True)):
        if dim is not None and as_length(site.static(1 + axis)) != n:
            raise ValueError(
                f"Axis {axis} of {describe(site.node.inputs[0])} has length {n}, but the program "
                f"declares {as_length(site.static(1 + axis))}."
            )
    return x


@rule(Reshape)
def reshape(site: Site, x: Array, dims: Array) -> Array:
    lengths = as_lengths(site.static(1))
    if {-1, 0} <= {n for n in lengths if isinstance(n, int)}:  # JAX divides by 0
        raise ValueError(
            f"{describe(site.node.outputs[0])} has the shape {lengths}: with a length of 0 any length "
            "would do for -1, and it cannot be inferred. Write it as a number, or as a length of another "
            "array."
        )
    return jnp.reshape(x, lengths)


@rule(JoinDims)
def join_dims(site: Site, x: Array, *axis: Array) -> Array:
    # 3.0 keeps the first axis as a property, with the number of axes; so does 3.3.
    start, n = site.op.start_axis, site.op.n_axes
    s = x.shape
    return jnp.reshape(x, (*s[:start], math.prod(s[start : start + n]), *s[start + n :]))


@rule(SplitDims)
def split_dims(site: Site, x: Array, dims: Array) -> Array:
    axis = site.op.axis
    new = as_lengths(site.static(1))
    return jnp.reshape(x, (*x.shape[:axis], *new, *x.shape[axis + 1 :]))


@rule(Alloc)
def alloc(site: Site, x: Array, *dims: ArrayLike) -> Array:
    shape = _dims(site, 1, len(dims))
    x = jnp.asarray(x)
    declared = site.node.inputs[0].type.broadcastable
    for axis in range(-x.ndim, 0):
        if x.shape[axis] == 1 and shape[axis] != 1 and not declared[axis]:
            raise ValueError(
                f"Axis {axis} of {describe(site.node.inputs[0])} has length 1 and would be broadcast to "
                f"{shape[axis]}, but its type does not say that it is broadcastable. Use "
                "pt.specify_broadcastable."
            )
    return jnp.broadcast_to(x, shape)


@rule(AllocEmpty)
def alloc_empty(site: Site, *dims: ArrayLike) -> Array:
    # Zeros, not uninitialized memory: reading it must not differ from run to run.
    return jnp.zeros(_dims(site, 0, len(dims)), dtype=site.op.dtype)


@rule(ARange)
def arange(site: Site, start: Array, stop: Array, step: Array) -> Array:
    bounds = [site.static(k) for k in range(3)]
    if any(map(is_symbolic, bounds)):
        first, last, by = map(as_length, bounds)
        if by != 1:
            raise Inconclusive(f"a range from '{first}' to '{last}' by {by}")
        return (first + jnp.arange(jax.core.max_dim(last - first, 0))).astype(site.op.dtype)
    start, stop, step = bounds
    return jnp.arange(start, stop, step, dtype=site.op.dtype)


@rule(Eye)
def eye(site: Site, n: Array, m: Array, k: Array) -> Array:
    rows, columns = _dims(site, 0, 2)
    if is_traced(k) or not isinstance(rows, int) or not isinstance(columns, int):
        return jnp.equal(jnp.arange(columns)[None, :] - jnp.arange(rows)[:, None], k)
    return jnp.eye(rows, columns, int(k), dtype=site.op.dtype)


@rule(FillDiagonalOffset)
def fill_diagonal_offset(site: Site, a: Array, value: Array, offset: Array) -> Array:
    rows, columns = jnp.shape(a)
    on_it = jnp.equal(jnp.arange(columns)[None, :] - jnp.arange(rows)[:, None], offset)
    return jnp.where(on_it, value, a)


@rule(MakeVector)
def make_vector(site: Site, *xs: ArrayLike) -> Array:
    return jnp.stack([jnp.asarray(x, dtype=site.out.type.dtype) for x in xs])


@rule(TensorFromScalar, ScalarFromTensor, TypeCastingOp)
def as_it_is(site: Site, x: object) -> object:
    return x


@rule(Repeat)
def repeat(site: Site, x: Array, repeats: Array) -> Array:
    counts = np.asarray(site.static(1))
    axis = site.op.axis
    size = np.prod(x.shape, dtype=int) if axis is None else x.shape[axis]
    total = int(counts.sum()) if counts.ndim else int(counts) * int(size)
    if (counts < 0).any():
        raise ValueError(f"repeat got the count {counts.min()}, but counts must not be negative.")
    if counts.ndim and counts.size not in (1, size):
        raise ValueError(
            f"repeat got {counts.size} counts for an axis of length {size}. Pass one count, or one for "
            "each element."
        )
    if counts.ndim and counts.size == 1:
        total = int(counts[0]) * int(size)
    return jnp.repeat(jnp.asarray(x), counts, axis=axis, total_repeat_length=total)


def _lengths(site: Site, k: int) -> list[Any]:
    """The numbers in input ``k``; lengths in a shape may be traced."""
    lengths = site.frame.read(site.node.inputs[k])
    return list(lengths) if is_traced(lengths) else [int(n) for n in site.static(k)]


def _is_inside(site: Site, index: Array, n: Array | int) -> Array:
    inside = (index >= 0) & (index < n)
    if not is_traced(inside) and not np.all(inside):
        raise ValueError(f"{describe(site.out)}: an index lies outside of the shape.")
    return inside


@rule(UnravelIndex)
def unravel_index(site: Site, flat: Array, dims: Array) -> tuple[jax.Array, ...]:
    shape = _lengths(site, 1)
    inside = _is_inside(site, flat, math.prod(shape))
    is_c, indices = site.op.order == "C", []
    for n in reversed(shape) if is_c else shape:
        n = jnp.maximum(n, 1) if is_traced(n) else max(n, 1)
        indices.append(or_no_number(inside, jnp.asarray(flat % n)))
        flat = flat // n
    return tuple(reversed(indices) if is_c else indices)


@rule(RavelMultiIndex)
def ravel_multi_index(site: Site, *values: Array) -> Array:
    *indices, _ = values
    shape = _lengths(site, len(indices))
    inside: Any = True
    flat: Any = 0
    pairs = list(zip(indices, shape, strict=True))
    for k, n in pairs if site.op.order == "C" else reversed(pairs):
        if site.op.mode == "raise":
            inside = inside & _is_inside(site, k, n)
        k = k % n if site.op.mode == "wrap" else jnp.clip(k, 0, n - 1)
        flat = flat * n + k
    return or_no_number(inside, flat)


@rule(FitRows)
def fit(site: Site, rows: Array, length: ArrayLike) -> Array:
    return fit_rows(jnp.asarray(rows), as_length(site.static(1)), jnp)


@rule(KeepRows)
def keep_rows_rule(site: Site, rows: Array, count: Array, _: Array) -> Array:
    length, rows, last = as_length(site.static(2)), jnp.asarray(rows), site.op.last
    n = rows.shape[0]
    cut = rows[max(n - length, 0) :] if last else rows[:length]
    short = jnp.zeros((length - cut.shape[0], *rows.shape[1:]), dtype=rows.dtype)
    index = jnp.arange(length)
    kept = index >= length - count if last else index < count
    over = kept.reshape(-1, *[1] * (rows.ndim - 1))
    padded = jnp.concatenate([short, cut] if last else [cut, short])
    return jnp.where(over, padded, jnp.zeros((), rows.dtype))
