"""Sparse ops that PyTensor's C mode substitutes for others, on SciPy's arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from pytensor.sparse.rewriting import (
    MulSDCSC,
    MulSDCSR,
    MulSVCSR,
    SamplingDotCSR,
    StructuredDotCSC,
    StructuredDotCSR,
    UsmmCscDense,
)

from loopax.base.upstream.pytensor import AddSparseDenseC, StructuredAddSparseDenseVectorCSR
from loopax.jax_backend.ops.sparse.csm import from_parts, major_of
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import OrderedBCOO
from loopax.jax_backend.values.sparse_entries import gather, product
from loopax.numerics.arrays import Array


def _matrix(format: str, data: Array, minor: Array, pointers: Array, width: int) -> OrderedBCOO:
    length = len(pointers) - 1
    shape = (width, length) if format == "csc" else (length, width)
    return from_parts(format, data, minor, pointers, shape, exact=False, unique=False)


@rule(StructuredDotCSC)
def dot_csc(
    site: Site, data: Array, rows: Array, pointers: Array, n_rows: Array, b: Array
) -> Array:
    a = _matrix("csc", data, rows, pointers, int(site.static(3)))
    return product(a, b, site.out.type.dtype)


@rule(StructuredDotCSR)
def dot_csr(site: Site, data: Array, cols: Array, pointers: Array, b: Array) -> Array:
    return product(_matrix("csr", data, cols, pointers, b.shape[0]), b, site.out.type.dtype)


@rule(UsmmCscDense)
def usmm_csc(
    site: Site,
    alpha: Array,
    data: Array,
    rows: Array,
    pointers: Array,
    n_rows: Array,
    y: Array,
    z: Array,
) -> Array:
    dtype = site.out.type.dtype
    a = _matrix("csc", data, rows, pointers, int(np.asarray(site.static(4)).reshape(())))
    return jnp.asarray(alpha, dtype) * product(a, y, dtype) + jnp.asarray(z, dtype)


@rule(AddSparseDenseC)
def add_dense(site: Site, data: Array, minor: Array, pointers: Array, y: Array) -> Array:
    width = y.shape[0 if site.op.format == "csc" else 1]
    a = _matrix(site.op.format, data, minor, pointers, width)
    dtype = site.out.type.dtype
    return jnp.asarray(y, dtype).at[a.row, a.col].add(jnp.asarray(a.data, dtype), mode="drop")


@rule(MulSDCSC)
def multiply_csc(site: Site, data: Array, rows: Array, pointers: Array, b: Array) -> Array:
    return data * gather(b, rows, major_of(pointers, len(data)))


@rule(MulSDCSR)
def multiply_csr(site: Site, data: Array, cols: Array, pointers: Array, b: Array) -> Array:
    return data * gather(b, major_of(pointers, len(data)), cols)


@rule(MulSVCSR)
def multiply_vector(site: Site, data: Array, cols: Array, pointers: Array, b: Array) -> Array:
    return data * gather(b, cols)


@rule(StructuredAddSparseDenseVectorCSR)
def add_vector(site: Site, data: Array, cols: Array, pointers: Array, b: Array) -> Array:
    return data + gather(b, cols)


@rule(SamplingDotCSR)
def sampling_dot(
    site: Site, x: Array, y: Array, data: Array, cols: Array, pointers: Array, n_cols: Array
) -> tuple[Any, ...]:
    rows = major_of(pointers, len(data))
    return data * jnp.sum(gather(x, rows) * gather(y, cols), axis=1), cols, pointers
