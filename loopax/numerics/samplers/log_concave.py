"""Counts with a log-concave mass function: Poisson, binomial, hypergeometric.

One draw takes few rounds for any parameters, and memory for one number. Below a mean of 10 it is a
search from 0 upwards. Above, it is the ratio of uniforms, with a hat for all three families (Stadlober,
"The ratio of uniforms approach for generating discrete random variates", Journal of Computational and
Applied Mathematics 31, 1990, which NumPy's hypergeometric follows): ``k`` is the floor of ``x = mean +
1/2 + width (v - 1/2) / u``, accepted where ``u^2`` is below the mass at ``k`` over the mass at the
mode. At least two of three pairs are accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Arrays
from loopax.numerics.samplers.rejection import by_rejection, split, uniform

SMALL = 10
_STEPS = 150  # the mass beyond, at a mean below 10, is less than 1e-100


def hat_width(variance: jax.Array) -> jax.Array:
    """Stadlober's width of the hat: ``2 sqrt(2 (variance + 1/2) / e) + 3 - 2 sqrt(3 / e)``."""
    return 1.7155277699214135 * jnp.sqrt(variance + 0.5) + 0.8989161620588988


def draw_count(
    key: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    mode: jax.Array,
    largest: jax.Array,
    first: jax.Array,
    ratio: Callable[[Any], Any],
    log_mass: Callable[[Any], Any],
) -> jax.Array:
    """Draw whole numbers from 0 to ``largest``, as floats; NaN where a parameter is NaN.

    Parameters
    ----------
    mean, variance, mode, largest
        Properties of the distribution, all of one shape.
    first
        The mass at 0, used where the mean is below 10.
    ratio
        ``ratio(k)``: the mass at ``k`` over the mass at ``k - 1``, for one number ``k``.
    log_mass
        ``log_mass(k)``: the logarithm of the mass, elementwise.
    """
    low, high = split(key)
    small = mean < SMALL
    by_ratio = _ratio_of_uniforms(high, mean >= SMALL, mean, variance, mode, largest, log_mass)
    by_search = jnp.minimum(_search(low, small, mean, first, ratio), largest)
    return jnp.where(small, by_search, by_ratio)


def _search(
    key: jax.Array,
    active: jax.Array,
    mean: jax.Array,
    first: jax.Array,
    ratio: Callable[[Any], Any],
) -> jax.Array:
    """The least ``k`` where the distribution function reaches a uniform number."""
    dtype = mean.dtype
    # Past the mean, the search reaches so small a mass only if the remainder is a rounding error.
    least = 1e-3 * jnp.finfo(dtype).eps

    def goes_on(remainder: jax.Array, mass: jax.Array, k: jax.Array) -> jax.Array:
        return active & (remainder > mass) & ((mass > least) | (k < mean))

    def step(carry: Any) -> Arrays:
        k, result, remainder, mass, open_ = carry
        remainder, k = remainder - mass, k + 1
        mass = mass * ratio(k)
        return k, jnp.where(open_, k, result), remainder, mass, open_ & goes_on(remainder, mass, k)

    def unfinished(carry: Any) -> jax.Array:
        return carry[4].any() & (carry[0] < _STEPS)

    zero = jnp.zeros((), dtype)
    remainder = uniform(key, mean.shape, dtype)
    start = (zero, jnp.zeros_like(mean), remainder, first, goes_on(remainder, first, zero))
    return manual_axes.while_loop(unfinished, step, start)[1]


def _ratio_of_uniforms(
    key: jax.Array,
    active: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    mode: jax.Array,
    largest: jax.Array,
    log_mass: Callable[[Any], Any],
) -> jax.Array:
    centre, width, peak = mean + 0.5, hat_width(variance), log_mass(mode)

    def propose(u: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        k = jnp.floor(centre + width * (v - 0.5) / u)
        inside = (k >= 0) & (k <= largest)
        k = jnp.where(inside, k, mode)
        return k, inside & (2 * jnp.log(u) <= log_mass(k) - peak)

    return by_rejection(key, active, mean.dtype, propose)
