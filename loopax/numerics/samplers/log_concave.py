"""Counts with a log-concave mass function: Poisson, binomial, hypergeometric.

One draw takes few rounds whatever the parameters are, and memory for one number. Below a mean of 10 it
is a search from 0 upwards. Above, the ratio of uniforms, with a hat that holds for all three families
(Stadlober, "The ratio of uniforms approach for generating discrete random variates", Journal of
Computational and Applied Mathematics 31, 1990; NumPy's hypergeometric has it from there): ``k`` is the
floor of ``x = mean + 1/2 + width (v - 1/2) / u``, taken where ``u^2`` is below the mass at ``k`` over
that at the mode. Two of three pairs are taken, or more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from loopax.numerics import in_mesh
from loopax.numerics.samplers.rejection import by_rejection, split, uniform

SMALL = 10
_STEPS = 150  # the mass beyond, at a mean below 10, is less than 1e-100


def hat_width(variance: Any) -> Any:
    """Stadlober's width of the hat: ``2 sqrt(2 (variance + 1/2) / e) + 3 - 2 sqrt(3 / e)``."""
    return 1.7155277699214135 * jnp.sqrt(variance + 0.5) + 0.8989161620588988


def draw_count(
    key: Any,
    mean: Any,
    variance: Any,
    mode: Any,
    largest: Any,
    first: Any,
    ratio: Callable[[Any], Any],
    log_mass: Callable[[Any], Any],
) -> Any:
    """Whole numbers from 0 to ``largest``, as floats; NaN where a parameter is none.

    Parameters
    ----------
    mean, variance, mode, largest
        Of the distribution, all of one shape.
    first
        The mass at 0, used where the mean is below 10.
    ratio
        ``ratio(k)``: the mass at ``k`` over that at ``k - 1``, for one number ``k``.
    log_mass
        ``log_mass(k)``: the logarithm of the mass, elementwise.
    """
    low, high = split(key)
    small = mean < SMALL
    found = _ratio_of_uniforms(high, mean >= SMALL, mean, variance, mode, largest, log_mass)
    searched = jnp.minimum(_search(low, small, mean, first, ratio), largest)
    return jnp.where(small, searched, found)


def _search(key: Any, wanted: Any, mean: Any, first: Any, ratio: Callable[[Any], Any]) -> Any:
    """The least ``k`` where the distribution function reaches a uniform number."""
    dtype = mean.dtype
    # Past the mean, a mass this small is only met where rounding has left a rest that is none.
    least = 1e-3 * jnp.finfo(dtype).eps

    def goes_on(rest: Any, mass: Any, k: Any) -> Any:
        return wanted & (rest > mass) & ((mass > least) | (k < mean))

    def step(carry: Any) -> Any:
        k, found, rest, mass, open_ = carry
        rest, k = rest - mass, k + 1
        mass = mass * ratio(k)
        return k, jnp.where(open_, k, found), rest, mass, open_ & goes_on(rest, mass, k)

    def unfinished(carry: Any) -> Any:
        return carry[4].any() & (carry[0] < _STEPS)

    zero = jnp.zeros((), dtype)
    rest = uniform(key, mean.shape, dtype)
    start = (zero, jnp.zeros_like(mean), rest, first, goes_on(rest, first, zero))
    return in_mesh.while_loop(unfinished, step, start)[1]


def _ratio_of_uniforms(
    key: Any,
    wanted: Any,
    mean: Any,
    variance: Any,
    mode: Any,
    largest: Any,
    log_mass: Callable[[Any], Any],
) -> Any:
    centre, width, peak = mean + 0.5, hat_width(variance), log_mass(mode)

    def propose(u: Any, v: Any) -> Any:
        k = jnp.floor(centre + width * (v - 0.5) / u)
        inside = (k >= 0) & (k <= largest)
        k = jnp.where(inside, k, mode)
        return k, inside & (2 * jnp.log(u) <= log_mass(k) - peak)

    return by_rejection(key, wanted, mean.dtype, propose)
