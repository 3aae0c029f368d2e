"""Discrete families: whole numbers.

They are computed in the widest float, so that counts beyond 2^53 (in JAX's 32-bit mode, 2^24) are
rounded, as in NumPy's own samplers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics.arrays import Shape, widest_float
from loopax.numerics.no_number import no_number
from loopax.numerics.samplers.domains import LARGEST_MEAN
from loopax.numerics.samplers.gammas import beta_draw, gamma_draw
from loopax.numerics.samplers.log_concave import draw_count
from loopax.numerics.samplers.log_masses import log_binomial, log_hypergeometric, log_poisson
from loopax.numerics.samplers.rejection import split


def as_count(x: jax.Array, dtype: np.dtype) -> jax.Array:
    """Convert whole floats to integers: the largest one on overflow, `no_number` for NaN."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.integer):
        return x
    largest = jnp.iinfo(dtype).max
    fits = x < float(largest)
    whole = jnp.where(fits, jnp.where(fits, x, 0).astype(dtype), jnp.asarray(largest, dtype))
    return jnp.where(jnp.isnan(x), no_number(dtype), whole)


def poisson_draw(key: jax.Array, mean: jax.Array) -> jax.Array:
    """Draw from Poisson distributions, one for each element of ``mean``, as floats."""
    return draw_count(
        key,
        mean,
        variance=mean,
        mode=jnp.floor(mean),
        largest=jnp.full_like(mean, jnp.inf),
        first=jnp.exp(-mean),
        ratio=lambda k: mean / k,
        log_mass=lambda k: log_poisson(k, mean),
    )


def binomial_draw(key: jax.Array, n: jax.Array, p: jax.Array) -> jax.Array:
    """Draw from binomial distributions of ``n`` and ``p`` (floats of one shape), as floats."""
    rare = jnp.minimum(p, 1 - p)  # the probability of the rarer outcome, for a short search
    common = 1 - rare
    mean = n * rare
    odds = rare / common
    count = draw_count(
        key,
        mean,
        variance=mean * common,
        mode=jnp.minimum(jnp.floor(mean + rare), n),
        largest=n,
        first=jnp.exp(n * jnp.log1p(-rare)),
        ratio=lambda k: odds * (n - k + 1) / k,
        log_mass=lambda k: log_binomial(k, n, rare, common),
    )
    return jnp.where(p > 0.5, n - count, count)


def hypergeometric_draw(
    key: jax.Array, good: jax.Array, bad: jax.Array, sample: jax.Array
) -> jax.Array:
    """Draw the number of good items in a ``sample``, as floats. All arguments have one shape.

    By symmetry, good and bad items, and drawn and remaining ones, are exchanged so that the fewer
    count: then 0 is possible, and the search from there is short.
    """
    total = good + bad
    few, many = jnp.minimum(good, bad), jnp.maximum(good, bad)
    drawn = jnp.minimum(sample, total - sample)
    share = jnp.where(total > 0, few / jnp.where(total > 0, total, 1), 0)
    mean = drawn * share
    largest = jnp.minimum(few, drawn)
    correction = jnp.where(total > 1, (total - drawn) / jnp.where(total > 1, total - 1, 1), 0)
    count = draw_count(
        key,
        mean,
        variance=mean * (1 - share) * correction,
        mode=jnp.minimum(jnp.floor((drawn + 1) * ((few + 1) / (total + 2))), largest),
        largest=largest,
        first=jnp.exp(log_hypergeometric(jnp.zeros_like(few), few, many, drawn)),
        ratio=lambda k: (few - k + 1) * (drawn - k + 1) / (k * (many - drawn + k)),
        log_mass=lambda k: log_hypergeometric(k, few, many, drawn),
    )
    count = jnp.where(total > 0, count, 0)
    count = jnp.where(good > bad, drawn - count, count)
    return jnp.where(drawn < sample, good - count, count)


def bernoulli(key: jax.Array, shape: Shape, dtype: np.dtype, p: jax.Array) -> jax.Array:
    return jax.random.uniform(key, shape, p.dtype) < p


def integers(
    key: jax.Array, shape: Shape, dtype: np.dtype, low: jax.Array, high: jax.Array
) -> jax.Array:
    """Draw from ``[low, high)`` as int64, then converted, as in PyTensor."""
    wide = jax.dtypes.canonicalize_dtype("int64")
    return jax.random.randint(key, shape, low.astype(wide), high.astype(wide), wide)


def poisson(key: jax.Array, shape: Shape, dtype: np.dtype, mean: jax.Array) -> jax.Array:
    return as_count(poisson_draw(key, jnp.broadcast_to(mean, shape)), dtype)


def binomial(
    key: jax.Array, shape: Shape, dtype: np.dtype, n: jax.Array, p: jax.Array
) -> jax.Array:
    n, p = jnp.broadcast_to(jnp.floor(n), shape), jnp.broadcast_to(p, shape)
    return as_count(binomial_draw(key, n, p), dtype)


def beta_binomial(
    key: jax.Array, shape: Shape, dtype: np.dtype, n: jax.Array, a: jax.Array, b: jax.Array
) -> jax.Array:
    first, second = split(key)
    return as_count(
        binomial_draw(second, jnp.broadcast_to(n, shape), beta_draw(first, shape, a, b)), dtype
    )


def negative_binomial(
    key: jax.Array, shape: Shape, dtype: np.dtype, n: jax.Array, p: jax.Array
) -> jax.Array:
    """Draw failures before the ``n``-th success: Poisson with a gamma distributed mean."""
    first, second = split(key)
    mean = gamma_draw(first, shape, n) * ((1 - p) / p)
    return as_count(poisson_draw(second, jnp.minimum(mean, LARGEST_MEAN)), dtype)


def geometric(key: jax.Array, shape: Shape, dtype: np.dtype, p: jax.Array) -> jax.Array:
    """Draw trials up to and with the first success, at least 1: exponential, rounded up."""
    e = jax.random.exponential(key, shape, widest_float())
    return as_count(jnp.maximum(jnp.ceil(e / -jnp.log1p(-p)), 1), dtype)


def hypergeometric(
    key: jax.Array,
    shape: Shape,
    dtype: np.dtype,
    good: jax.Array,
    bad: jax.Array,
    sample: jax.Array,
) -> jax.Array:
    numbers = (jnp.broadcast_to(jnp.floor(x), shape) for x in (good, bad, sample))
    return as_count(hypergeometric_draw(key, *numbers), dtype)
