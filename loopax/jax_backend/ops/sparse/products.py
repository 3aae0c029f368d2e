"""Products with sparse matrices."""

from __future__ import annotations

import jax.numpy as jnp
from pytensor.sparse.math import (
    Dot,
    SamplingDot,
    StructuredDot,
    StructuredDotGradCSC,
    StructuredDotGradCSR,
    TrueDot,
    Usmm,
)
from pytensor.sparse.type import SparseTensorType

from loopax.jax_backend.ops.scalars import convert
from loopax.jax_backend.ops.sparse.csm import major_of
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import OrderedBCOO, transposed, with_data
from loopax.jax_backend.values.sparse_entries import from_dense, gather, merged, product, todense
from loopax.numerics.arrays import Array


def dot(
    site: Site, x: Array | OrderedBCOO, y: Array | OrderedBCOO, dtype: str, *, regular: bool = True
) -> Array:
    """The dense product ``x @ y``, where one is sparse and the other has one or two dimensions."""
    if x.shape[-1] != y.shape[0]:
        raise ValueError(f"{site.op} of matrices of the shapes {x.shape} and {y.shape}.")
    if not isinstance(x, OrderedBCOO):
        assert isinstance(y, OrderedBCOO)
        return product(transposed(y), jnp.asarray(x).T, dtype, regular=regular).T
    y = todense(y, regular=True) if isinstance(y, OrderedBCOO) else y
    return product(x, y, dtype, regular=regular)


@rule(Dot)
def dense_dot(site: Site, x: Array | OrderedBCOO, y: Array | OrderedBCOO) -> Array:
    return dot(site, x, y, site.out.type.dtype)


@rule(StructuredDot, TrueDot)
def sparse_dot(site: Site, x: Array | OrderedBCOO, y: Array | OrderedBCOO) -> Array | OrderedBCOO:
    """The product; if it is sparse, it has an entry for every element, where SciPy leaves out zeros."""
    structured = isinstance(site.op, StructuredDot)
    out = dot(site, x, y, site.out.type.dtype, regular=not structured)
    t = site.out.type
    return from_dense(out, t.format) if isinstance(t, SparseTensorType) else out


@rule(Usmm)
def usmm(site: Site, alpha: Array, x: OrderedBCOO, y: Array, z: Array) -> Array:
    dtype = site.out.type.dtype
    return jnp.asarray(alpha, dtype) * dot(site, x, y, dtype) + jnp.asarray(z, dtype)


@rule(StructuredDotGradCSC)
def structured_dot_grad_csc(
    site: Site, rows: Array, pointers: Array, b: Array | OrderedBCOO, g: Array | OrderedBCOO
) -> Array:
    return _rows_product(site, rows, major_of(pointers, len(rows)), b, g)


@rule(StructuredDotGradCSR)
def structured_dot_grad_csr(
    site: Site, cols: Array, pointers: Array, b: Array | OrderedBCOO, g: Array | OrderedBCOO
) -> Array:
    return _rows_product(site, major_of(pointers, len(cols)), cols, b, g)


def _rows_product(
    site: Site, row: Array, col: Array, b: Array | OrderedBCOO, g: Array | OrderedBCOO
) -> Array:
    """Compute ``(g @ b.T)[row, col]`` element by element."""
    b, g = (todense(x) if isinstance(x, OrderedBCOO) else x for x in (b, g))
    dtype = site.out.type.dtype
    return jnp.sum(convert(gather(g, row), dtype) * convert(gather(b, col), dtype), axis=1)


@rule(SamplingDot)
def sampling_dot(site: Site, x: Array, y: Array, p: OrderedBCOO) -> OrderedBCOO:
    """Compute ``p * (x @ y.T)`` only at the entries of ``p``."""
    if p.shape != (x.shape[0], y.shape[0]) or x.shape[1] != y.shape[1]:
        raise ValueError(
            f"{site.op} of matrices of the shapes {x.shape} and {y.shape}, at the entries of one of "
            f"shape {p.shape}."
        )
    p = merged(p)
    products = jnp.sum(gather(x, p.row) * gather(y, p.col), axis=1)
    return with_data(p, (p.data * products).astype(site.out.type.dtype))
