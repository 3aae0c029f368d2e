"""Gauss's hypergeometric function: its series where that converges fast, SciPy elsewhere.

JAX's function is for positive arguments: it is 1.0 for nan, wrong for most negative ones, and its sums
are unbounded, so that it does not end for some arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array, Arrays
from loopax.numerics.special.forward_mode import slope, with_slopes

_RADIUS = 0.995  # here the terms fall to a millionth of a percent in some 8,000 steps
_PARAMETER = 30.0  # with a larger parameter the terms may cancel, if they have several signs
_MOST_TERMS = 100_000
_LOST = 1e4  # the largest ratio of the sum of absolute terms to the sum


def hyp2f1(a: Array, b: Array, c: Array, z: Array) -> jax.Array:
    """``2F1(a, b; c; z)``, elementwise."""
    return _hyp2f1(a, b, c, z)


def _value(a: Array, b: Array, c: Array, z: Array) -> jax.Array:
    """The function by its series; on the host where that fails for an element."""
    value, size = _by_series(a, b, c, z)
    is_sound = jnp.all(size <= _LOST * jnp.abs(value))
    on_host = partial(_on_host, value.dtype)
    return manual_axes.cond(is_sound, lambda *_: value, on_host, a, b, c, z)


def _slope(k: int) -> Callable[..., Any]:
    """The derivative with respect to parameter ``k``."""

    def along(*xs: Array) -> jax.Array:
        # Elsewhere the derivative is unknown: NaN is better than a wrong number. A factor makes further
        # derivatives NaN too; the derivatives of a NaN chosen by `where` are 0.
        derivative = slope(lambda *xs: _by_series(*xs)[0], k)(*xs)
        value, size = _by_series(*xs)
        largest = jnp.maximum(jnp.abs(value), jnp.abs(derivative))
        is_known = size * jnp.sqrt(jnp.finfo(value.dtype).eps) <= largest  # to half of the digits
        known = derivative * jnp.where(is_known, 1, jnp.nan).astype(derivative.dtype)
        # At a pole in c, too, the function is 1 where z is 0, whatever the other parameters are.
        return jnp.where(_is_pole(xs[2]) & (xs[3] == 0), 0, known)

    return along


def _is_pole(c: Array) -> Any:
    return (c <= 0) & (c == jnp.floor(c))


def _by_series(a: Array, b: Array, c: Array, z: Array) -> tuple[Any, Any]:
    """The sum of the series, and of its absolute terms: infinity where the series is not the function."""
    # Pfaff's transformation maps all negative z to the unit interval (DLMF 15.8.1).
    negative = z < 0
    y = jnp.where(negative, z / (z - 1), z)
    other = jnp.where(negative, c - b, b)
    # The ratio of two terms is about (1 + (a + b - c - 1) / n) y, and tends to y.
    growth = jnp.maximum(jnp.abs(a) + jnp.abs(other) - c, 0)
    lengths = (40 + 7 * growth) / -jnp.log(jnp.clip(y, 1e-30, _RADIUS))
    lengths = jax.lax.stop_gradient(jnp.where(y == 0, 0, lengths))
    is_small = jnp.maximum(jnp.maximum(jnp.abs(a), jnp.abs(other)), jnp.abs(c)) <= _PARAMETER
    has_one_sign = (a > 0) & (other > 0) & (c > 0) & (lengths <= _MOST_TERMS)
    # Where the power underflows, its product with the series may not be 0.
    has_power = -a * jnp.log1p(jnp.where(negative, -z, 0)) > np.log(np.finfo(z.dtype).tiny)
    easy = (y >= 0) & (y <= _RADIUS) & (is_small | has_one_sign | (y == 0)) & ~_is_pole(c)
    easy &= has_power
    first, second, third, at = (jnp.where(easy, x, 0.5) for x in (a, other, c, y))
    lengths = jnp.where(easy, lengths, 0)
    length = jnp.max(lengths, initial=0).astype(jnp.int32) + 40

    def add(state: Arrays) -> Arrays:
        n, term, total, size = state
        k = n.astype(term.dtype)
        term = term * ((first + k) * (second + k) / ((third + k) * (k + 1)) * at)
        return n + 1, term, total + term, size + jnp.abs(term)

    ones = jnp.ones_like(at)
    start = (jnp.asarray(0, jnp.int32), ones, ones, ones)
    _, term, total, size = manual_axes.while_loop(lambda s: s[0] < length, add, start)
    has_ended = jnp.abs(term) <= np.finfo(at.dtype).eps * size
    power = jnp.where(negative & easy, jnp.power(1 - jnp.where(negative & easy, z, 0), -first), 1)
    return total * power, jnp.where(easy & has_ended, size * jnp.abs(power), jnp.inf)


def _on_host(dtype: np.dtype, *arguments: Array) -> jax.Array:
    def by_scipy(*xs: Array) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(scipy.special.hyp2f1(*map(np.asarray, xs)), dtype=dtype)

    shape = jax.ShapeDtypeStruct(jnp.shape(arguments[0]), dtype)
    return manual_axes.pure_callback(by_scipy, shape, *arguments, vmap_method="expand_dims")


_hyp2f1 = with_slopes(
    _value, *map(_slope, range(3)), lambda a, b, c, z: a * b / c * hyp2f1(a + 1, b + 1, c + 1, z)
)
