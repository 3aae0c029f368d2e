"""Derivatives, in any mode, of elementwise functions that only forward mode can differentiate.

A series whose length depends on its arguments is a ``while_loop``, which reverse mode refuses. But the
derivative of an elementwise function along one argument is elementwise too, and reverse mode transposes
its product with a tangent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from loopax.numerics.arrays import Array


def with_slopes(f: Callable[..., Any], *slopes: Callable[..., Any]) -> Callable[..., Any]:
    """Attach to the elementwise ``f`` its derivative along each argument, computed on demand."""
    function = jax.custom_jvp(f)

    def jvp(
        xs: tuple[Array, ...], tangents: tuple[jax.Array | SymbolicZero, ...]
    ) -> tuple[jax.Array, jax.Array]:
        out = function(*xs)
        total = jnp.zeros_like(out)
        for along, t in zip(slopes, tangents, strict=True):
            if not isinstance(t, SymbolicZero):
                total = total + t * along(*xs)
        return out, total

    function.defjvp(jvp, symbolic_zeros=True)
    return lambda *xs: function(*jnp.broadcast_arrays(*xs))


def differentiable(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``f``, elementwise on arrays of one shape, with one output or several, differentiable."""

    @jax.custom_jvp
    def function(*xs: Array) -> Any:
        return f(*xs)

    def jvp(
        xs: tuple[Array, ...], tangents: tuple[jax.Array | SymbolicZero, ...]
    ) -> tuple[Any, Any]:
        out = function(*xs)
        leaves, tree = jax.tree.flatten(out)
        totals = [jnp.zeros_like(y) for y in leaves]
        for k, t in enumerate(tangents):
            if isinstance(t, SymbolicZero):
                continue
            slopes = jax.tree.leaves(slope(f, k)(*xs))
            totals = [
                total + s * t if jnp.issubdtype(total.dtype, jnp.inexact) else total
                for total, s in zip(totals, slopes, strict=True)
            ]
        out_tangents = [_tangent(x, t) for x, t in zip(leaves, totals, strict=True)]
        return out, jax.tree.unflatten(tree, out_tangents)

    function.defjvp(jvp, symbolic_zeros=True)
    return function


def slope(f: Callable[..., Any], k: int) -> Callable[..., Any]:
    """The derivative of ``f`` along its argument ``k``, which is `differentiable` again."""

    def along(*xs: Array) -> Any:
        def at_argument(x: Array) -> Any:
            return f(*xs[:k], x, *xs[k + 1 :])

        derivative = jax.jvp(at_argument, (xs[k],), (jnp.ones_like(xs[k]),))[1]
        return jax.tree.map(
            lambda d: jnp.zeros(d.shape) if d.dtype == jax.dtypes.float0 else d, derivative
        )

    return differentiable(along)


def _tangent(x: jax.Array, total: jax.Array) -> Array:
    """``total``, or JAX's float0 zeros for an integer ``x``."""
    is_float = jnp.issubdtype(x.dtype, jnp.inexact)
    return total if is_float else np.zeros(x.shape, jax.dtypes.float0)
