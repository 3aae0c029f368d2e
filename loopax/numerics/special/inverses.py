"""Inverses of the incomplete gamma and beta functions, which JAX lacks.

The logarithm of a gamma variable, and the logit of a beta variable, have log-concave densities, and so
log-concave distribution functions: the method is Newton's on the logarithm of the smaller tail, within
bounds that shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array, Arrays, widest_float
from loopax.numerics.special import incomplete_beta
from loopax.numerics.special.forward_mode import slope
from loopax.numerics.special.incomplete_gammas import density, gammainc, gammaincc
from loopax.numerics.special.polygammas import psi, tri_gamma

_MOST_STEPS = 100
_END, _TINY = 750.0, 700.0  # bounds of logarithms of all numbers, and of normal ones


def _solved(
    lower: Array, upper: Array, tails: Callable[[Any], tuple[Any, Any, Any]], start: Array
) -> jax.Array:
    """Solve for ``t`` with tails ``lower`` and ``upper``; ``tails(t)`` are both, and the density."""
    by_lower = lower <= upper
    eps = jnp.finfo(start.dtype).eps
    goal = jnp.where(by_lower, lower, upper)

    def step(state: Arrays) -> Arrays:
        i, t, left, right, _ = state
        below, above, height = tails(t)
        at = jnp.where(by_lower, below, above)
        is_left = jnp.where(by_lower, at < goal, at > goal)
        left, right = jnp.where(is_left, t, left), jnp.where(is_left, right, t)
        change = jnp.log(goal / at) * at / height
        new = t + jnp.where(by_lower, change, -change)
        # Where the tail vanishes, or the step leaves the bounds, bisect.
        new = jnp.where((new > left) & (new < right), new, (left + right) / 2)
        new = jnp.where(at == goal, t, new)
        going = jnp.abs(new - t) > eps * jnp.maximum(jnp.abs(t), 1)
        return i + 1, new, left, right, jnp.any(going)

    ends = jnp.full_like(start, _END)
    start = jnp.where(jnp.isfinite(start), jnp.clip(start, -_END, _END), 0)
    state = 0, start, -ends, ends, True
    t = manual_axes.while_loop(lambda s: s[4] & (s[0] < _MOST_STEPS), step, state)[1]
    below, above, _ = tails(t)
    # A tail that underflows in JAX's sum does not determine the position.
    lost = (jnp.where(by_lower, below, above) == 0) & (jnp.abs(t) < _TINY)
    return jnp.where(lost, jnp.nan, t)


def _inverse_gamma(k: Array, p: Array, upper: bool) -> jax.Array:
    dtype = k.dtype
    wide = widest_float()
    k, p = k.astype(wide), p.astype(wide)
    inside = (k > 0) & jnp.isfinite(k) & (p > 0) & (p < 1)
    shape, mass = jnp.where(inside, k, 1), jnp.where(inside, p, 0.5)
    low, high = (1 - mass, mass) if upper else (mass, 1 - mass)

    def tails(t: Array) -> tuple[Any, Any, Any]:
        x = jnp.exp(t)
        return gammainc(shape, x), gammaincc(shape, x), x * density(shape, x)

    deviate = _normal(low, high)
    start = psi(shape) + deviate * jnp.sqrt(tri_gamma(shape))
    x = jnp.exp(_solved(low, high, tails, start))
    # Numbers up to the least one of XLA on the CPU.
    x = jnp.where(x <= (1 + 1e-6) * jnp.finfo(wide).tiny, 0, x)
    undefined = ~(k >= 0) | jnp.isinf(k) | ~((p >= 0) & (p <= 1))
    at_zero = (p == 0) if upper else (p == 1)  # for shape 0 all of the mass is at 0
    ends = jnp.where(at_zero, jnp.inf, 0.0)
    return jnp.where(inside, x, jnp.where(undefined, jnp.nan, ends)).astype(dtype)


def _normal(low: Array, high: Array) -> jax.Array:
    """The normal quantile, from the smaller tail."""
    least = jnp.finfo(low.dtype).tiny
    ndtri = jax.scipy.special.ndtri
    small = ndtri(jnp.clip(jnp.minimum(low, high), least, 0.5))
    return jnp.where(low <= high, small, -small)


def _gamma_inverse(upper: bool) -> Callable[..., Any]:
    tail = gammaincc if upper else gammainc

    @jax.custom_jvp
    def function(k: Array, p: Array) -> jax.Array:
        return _inverse_gamma(k, p, upper)

    @function.defjvp
    def _jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
        k, p = primals
        x = function(k, p)
        height = density(k, x)
        tail_tangent = slope(tail, 0)(k, x) * tangents[0]
        change = (tail_tangent - tangents[1] if upper else tangents[1] - tail_tangent) / height
        return x, change

    return function


_lower_inverse, _upper_inverse = _gamma_inverse(False), _gamma_inverse(True)


def gammaincinv(k: Array, p: Array) -> jax.Array:
    """The ``x`` with ``gammainc(k, x) == p``."""
    return _lower_inverse(*jnp.broadcast_arrays(k, p))


def gammainccinv(k: Array, p: Array) -> jax.Array:
    """The ``x`` with ``gammaincc(k, x) == p``."""
    return _upper_inverse(*jnp.broadcast_arrays(k, p))


def betaincinv(a: Array, b: Array, p: Array) -> jax.Array:
    """The ``x`` with ``betainc(a, b, x) == p``."""
    return _beta(*jnp.broadcast_arrays(a, b, p))


@jax.custom_jvp
def _beta(a: Array, b: Array, p: Array) -> jax.Array:
    dtype = a.dtype
    wide = widest_float()
    a, b, p = (x.astype(wide) for x in (a, b, p))
    inside = (a > 0) & (b > 0) & jnp.isfinite(a) & jnp.isfinite(b) & (p > 0) & (p < 1)
    first, second, mass = (jnp.where(inside, x, o) for x, o in ((a, 1), (b, 1), (p, 0.5)))

    def tails(t: Array) -> tuple[Any, Any, Any]:
        x, complement = jax.nn.sigmoid(t), jax.nn.sigmoid(-t)
        below = incomplete_beta.betainc(first, second, x)
        above = incomplete_beta.betainc(second, first, complement)
        # Next to a tiny x, 1 - x rounds to 1.
        right = jnp.where((t < -7) & (below > 0.1), 1 - below, above)
        left = jnp.where((t > 7) & (above > 0.1), 1 - above, below)
        return left, right, incomplete_beta.density_of(first, second, t)

    deviate = _normal(mass, 1 - mass)
    spread = jnp.sqrt(tri_gamma(first) + tri_gamma(second))
    t = _solved(mass, 1 - mass, tails, psi(first) - psi(second) + deviate * spread)
    value = jnp.where(inside, jax.nn.sigmoid(t), jnp.where((p == 0) | (p == 1), p, jnp.nan))
    return jnp.where((a > 0) & (b > 0), value, jnp.nan).astype(dtype)


@_beta.defjvp
def _beta_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    a, b, p = primals
    x = _beta(a, b, p)
    height = incomplete_beta.density(a, b, x)
    tail_tangent = slope(incomplete_beta.betainc, 0)(a, b, x) * tangents[0]
    tail_tangent = tail_tangent + slope(incomplete_beta.betainc, 1)(a, b, x) * tangents[1]
    return x, (tangents[2] - tail_tangent) / height
