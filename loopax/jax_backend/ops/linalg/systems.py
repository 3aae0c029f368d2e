"""Other systems of equations: tensor equations, tridiagonal systems, least squares."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from pytensor.tensor.linalg.inverse import TensorInv
from pytensor.tensor.linalg.solvers.lstsq import Lstsq, TensorSolve
from pytensor.tensor.linalg.solvers.tridiagonal import LUFactorTridiagonal, SolveLUFactorTridiagonal

from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.leaf import with_finite_matrices
from loopax.jax_backend.staging.registry import rule
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array


@rule(TensorInv)
def tensor_inverse(site: Site, a: Array) -> Array:
    (a,) = with_finite_matrices(site.node, [a])
    return jnp.linalg.tensorinv(a, site.op.ind)


@rule(TensorSolve)
def tensor_solve(site: Site, a: Array, b: Array) -> Array:
    a, b = with_finite_matrices(site.node, [a, b])
    return jnp.linalg.tensorsolve(a, b, site.op.axes)


@rule(Lstsq)
def least_squares(site: Site, a: Array, b: Array, rcond: Any) -> tuple[jax.Array, ...]:
    a, b = with_finite_matrices(site.node, [a, b])
    return jnp.linalg.lstsq(a, b, rcond)


# -- tridiagonal, as LAPACK's gttrf and gttrs --------------------------------------------------------


@rule(LUFactorTridiagonal)
def tridiagonal_factors(
    site: Site, below: Array, diagonal: Array, above: Array
) -> tuple[jax.Array, ...]:
    dtype = site.out.type.dtype
    below, diagonal, above = (jnp.asarray(x, dtype) for x in (below, diagonal, above))
    n = diagonal.shape[0]

    def eliminate(row: tuple[jax.Array, ...], xs: tuple[jax.Array, ...]) -> Any:
        """Eliminate one row with the next; the larger of their first elements is the pivot."""
        (d, u), (i, low, d_next, u_next) = row, xs
        swaps = jnp.abs(low) > jnp.abs(d)
        pivot, other = jnp.where(swaps, low, d), jnp.where(swaps, d, low)
        factor = other / jnp.where(pivot == 0, 1, pivot)
        kept = jnp.where(swaps, d_next, u)
        remainder = jnp.where(swaps, u, d_next) - factor * kept
        last = jnp.where(swaps, -factor * u_next, u_next)
        fill = jnp.where(swaps, u_next, 0)
        return (remainder, last), (factor, pivot, kept, fill, i + 1 + swaps)

    none = jnp.zeros(1, dtype)
    steps = jnp.arange(n - 1), below, diagonal[1:], jnp.concatenate([above[1:], none])
    start = diagonal[0], jnp.concatenate([above, none])[0]
    (last, _), (factors, pivots, kept, fill, order) = manual_axes.scan(eliminate, start, steps)
    places = jnp.concatenate([order, jnp.full(1, n)]).astype(jnp.int32)
    return factors, jnp.concatenate([pivots, last[None]]), kept, fill[: max(n - 2, 0)], places


@rule(SolveLUFactorTridiagonal)
def tridiagonal_solve(
    site: Site, factors: Array, diagonal: Array, above: Array, fill: Array, places: Array, b: Array
) -> Array:
    dtype = site.out.type.dtype
    arrays = (jnp.asarray(x, dtype) for x in (factors, diagonal, above, fill, b))
    factors, diagonal, above, fill, b = arrays
    n = diagonal.shape[0]
    swaps = jnp.asarray(places)[:-1] != jnp.arange(1, n)
    padded = _padded(above, n), _padded(fill, n)
    if site.op.transposed:
        return _lower_transposed(factors, swaps, _upper(diagonal, *padded, b, True))
    return _upper(diagonal, *padded, _lower(factors, swaps, b), False)


def _padded(x: jax.Array, n: int) -> jax.Array:
    return jnp.concatenate([x, jnp.zeros(n - x.shape[0], x.dtype)])


def _lower(factors: jax.Array, swaps: jax.Array, b: jax.Array) -> jax.Array:
    def step(x: jax.Array, row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        factor, swap, y = row
        first, second = jnp.where(swap, y, x), jnp.where(swap, x, y)
        return second - factor * first, first

    last, rows = manual_axes.scan(step, b[0], (factors, swaps, b[1:]))
    return jnp.concatenate([rows, last[None]])


def _lower_transposed(factors: jax.Array, swaps: jax.Array, b: jax.Array) -> jax.Array:
    def step(y: jax.Array, row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        factor, swap, x = row
        new = x - factor * y
        return jnp.where(swap, y, new), jnp.where(swap, new, y)

    first, rows = manual_axes.scan(step, b[-1], (factors, swaps, b[:-1]), reverse=True)
    return jnp.concatenate([first[None], rows])


def _upper(
    diagonal: jax.Array, above: jax.Array, fill: jax.Array, b: jax.Array, transposed: bool
) -> jax.Array:
    """Solve from the last row up; ``transposed``, from the first row down."""
    if transposed:
        above, fill = jnp.roll(above, 1), jnp.roll(fill, 2)

    def step(before: tuple[jax.Array, jax.Array], row: tuple[jax.Array, ...]) -> Any:
        d, u, f, y = row
        x = (y - u * before[0] - f * before[1]) / d
        return (x, before[0]), x

    zero = jnp.zeros_like(b[0])
    rows = diagonal, above, fill, b
    return manual_axes.scan(step, (zero, zero), rows, reverse=not transposed)[1]
