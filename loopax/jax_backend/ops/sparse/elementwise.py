"""Sums, products and comparisons of sparse matrices, element by element.

As in SciPy, a sum, product or comparison of two sparse matrices has no entry where the result is 0. The
number of entries is not known while JAX traces, so the results have padding.
"""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import pytensor.sparse.math as psm
from pytensor.scalar import upcast

from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.jax_backend.values.sparse import OrderedBCOO, with_data
from loopax.jax_backend.values.sparse_entries import (
    factor,
    from_dense,
    gather,
    joined,
    lookup,
    merged,
    nonzeros,
    todense,
)
from loopax.numerics.arrays import Array

# The classes have other names in each release of PyTensor; their instances do not.
_COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less_than": operator.lt,
    "greater_than": operator.gt,
    "less_equal": operator.le,
    "greater_equal": operator.ge,
}
_TWO_SPARSE = {type(getattr(psm, f"{k}_s_s")): f for k, f in _COMPARISONS.items()}
_WITH_DENSE = {type(getattr(psm, f"{k}_s_d")): f for k, f in _COMPARISONS.items()}


def _same_shape(site: Site, x: Array | OrderedBCOO, y: Array | OrderedBCOO) -> None:
    if x.shape != y.shape:
        raise ValueError(f"{site.op} of matrices of the shapes {x.shape} and {y.shape}.")


def _as_out(site: Site, x: Array) -> jax.Array:
    return jnp.asarray(x, site.out.type.dtype)


@rule(type(psm.add_s_s))
def add_sparse(site: Site, x: OrderedBCOO, y: OrderedBCOO) -> OrderedBCOO:
    _same_shape(site, x, y)
    (a, b), where = joined([x, y], x.format)
    return nonzeros(with_data(where, _as_out(site, a) + _as_out(site, b)))


@rule(type(psm.add_s_s_data))
def add_entries(site: Site, x: OrderedBCOO, y: OrderedBCOO) -> OrderedBCOO:
    """Add entry by entry; both must have equal indices, in equal order."""
    _same_shape(site, x, y)
    if x.nse != y.nse:
        raise ValueError(
            f"add_s_s_data takes matrices with entries at the same places, got {x.nse} and {y.nse} "
            "entries. For other matrices, use pytensor.sparse.add(x, y)."
        )
    return with_data(x, jnp.asarray(x.data) + y.data)


@rule(type(psm.add_s_d))
def add_dense(site: Site, x: OrderedBCOO, y: Array) -> Array:
    _same_shape(site, x, y)
    return _as_out(site, y).at[x.row, x.col].add(_as_out(site, x.data), mode="drop")


@rule(type(psm.structured_add_s_v))
def add_vector(site: Site, x: OrderedBCOO, y: Array) -> OrderedBCOO:
    """Add ``y[j]`` to each nonzero element of column ``j``."""
    _check_vector(site, x, y)
    x = merged(x)
    return nonzeros(with_data(x, jnp.where(x.data != 0, x.data + gather(y, x.col), x.data)))


@rule(type(psm.mul_s_s))
def multiply_sparse(site: Site, x: OrderedBCOO, y: OrderedBCOO) -> OrderedBCOO:
    _same_shape(site, x, y)
    x = merged(x)
    other = lookup(y, *x.places)
    return nonzeros(with_data(x, _as_out(site, x.data) * _as_out(site, other)))


@rule(type(psm.mul_s_d))
def multiply_dense(site: Site, x: OrderedBCOO, y: Array) -> OrderedBCOO:
    """Multiply by a scalar, or by the elements of ``y`` at the entries of ``x``, all of which stay."""
    data = _as_out(site, x.data)
    if y.ndim == 0:
        return with_data(x, data * _as_out(site, y))
    _same_shape(site, x, y)
    return with_data(x, data * factor(_as_out(site, y), x, *x.places))


@rule(type(psm.mul_s_v))
def multiply_vector(site: Site, x: OrderedBCOO, y: Array) -> OrderedBCOO:
    """Multiply column ``j`` by ``y[j]``. Elements that are not stored stay 0, even if ``y`` is infinite."""
    _check_vector(site, x, y)
    x = merged(x)
    return nonzeros(with_data(x, _as_out(site, x.data) * factor(y, x, x.places[1])))


def _check_vector(site: Site, x: OrderedBCOO, y: Array) -> None:
    if y.shape != (x.shape[1],):
        raise ValueError(
            f"{site.op} of a matrix of shape {x.shape} and a vector of shape {y.shape}."
        )


@rule(*_TWO_SPARSE)
def compare_sparse(site: Site, x: OrderedBCOO, y: OrderedBCOO) -> OrderedBCOO:
    _same_shape(site, x, y)
    compare = _TWO_SPARSE[type(site.op)]
    dtype = upcast(*[v.type.dtype for v in site.node.inputs])
    if compare(0, 0):  # true wherever neither has an entry
        a, b = (jnp.asarray(todense(m), dtype) for m in (x, y))
        return from_dense(_as_out(site, compare(a, b)), x.format)
    (a, b), where = joined([x, y], x.format)
    result = compare(jnp.asarray(a, dtype), jnp.asarray(b, dtype))
    return nonzeros(with_data(where, _as_out(site, result)))


@rule(*_WITH_DENSE)
def compare_dense(site: Site, x: OrderedBCOO, y: Array) -> Array:
    _same_shape(site, x, y)
    dtype = upcast(*[v.type.dtype for v in site.node.inputs])
    compare = _WITH_DENSE[type(site.op)]
    return _as_out(site, compare(jnp.asarray(todense(x), dtype), jnp.asarray(y, dtype)))
