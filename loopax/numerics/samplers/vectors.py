"""Families with a vector of parameters: probabilities of outcomes, a mean and covariance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from loopax.numerics import manual_axes
from loopax.numerics.arrays import Shape
from loopax.numerics.samplers.counts import as_count, binomial_draw
from loopax.numerics.samplers.rejection import uniform


def categorical(key: jax.Array, shape: Shape, dtype: np.dtype, p: jax.Array) -> jax.Array:
    """Draw by locating a uniform number among the cumulative probabilities.

    An outcome of probability 0 does not occur: the number is above 0, and no larger than the sum.
    """
    steps = jnp.cumsum(p, axis=-1)
    u = uniform(key, shape, p.dtype) * steps[..., -1]
    if steps.size == steps.shape[-1]:
        return jnp.searchsorted(steps.reshape(-1), u)
    return (steps < u[..., None]).sum(-1)  # one pass without the array: XLA fuses it


def multinomial(
    key: jax.Array, shape: Shape, dtype: np.dtype, n: jax.Array, p: jax.Array
) -> jax.Array:
    """Draw outcome by outcome, each binomial among the remaining trials.

    The last outcome has the remaining probability, as in NumPy.
    """
    if not p.shape[-1]:
        return jnp.zeros((*shape, 0), dtype)
    last = jnp.maximum(1 - p[..., :-1].sum(-1, keepdims=True), 0)
    p = jnp.moveaxis(jnp.concatenate([p[..., :-1], last], axis=-1), -1, 0)
    remaining = jnp.cumsum(p[::-1], axis=0)[::-1]
    share = jnp.where(remaining > 0, p / jnp.where(remaining > 0, remaining, 1), 0)
    # The last outcome takes all remaining trials, free of rounding.
    share = jnp.clip(share, 0, 1).at[-1].set(1)

    def outcome(
        trials: jax.Array, key_and_share: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        key, share = key_and_share
        count = binomial_draw(key, trials, jnp.broadcast_to(share, shape))
        return trials - count, count

    keys = jax.random.split(key, p.shape[0])
    start = jnp.broadcast_to(jnp.floor(n), shape)
    _, counts = manual_axes.scan(outcome, start, (keys, share))
    return as_count(jnp.moveaxis(counts, 0, -1), dtype)


def multivariate_normal(
    key: jax.Array, shape: Shape, dtype: np.dtype, mean: jax.Array, cov: jax.Array, *, method: str
) -> jax.Array:
    """Draw by a factor of the covariance; ``method`` is "cholesky", "svd" or "eigh".

    NaN where the covariance is not positive definite, or with "eigh" not semidefinite.
    """
    if cov.shape[-2:] != (mean.shape[-1],) * 2:
        raise ValueError(
            f"A multivariate normal with a mean of length {mean.shape[-1]} has a covariance of shape "
            f"{cov.shape[-2:]}. To use one mean for all elements, write pt.full(n, mean)."
        )
    z = jax.random.normal(key, (*shape, mean.shape[-1]), mean.dtype)
    factor = _factor(method, cov)
    return mean + (factor @ z[..., None])[..., 0]


def _factor(method: str, cov: jax.Array) -> jax.Array:
    if method == "cholesky":
        return jnp.linalg.cholesky(cov)
    if method == "svd":
        vectors, values, _ = jnp.linalg.svd(cov)
    else:
        values, vectors = jnp.linalg.eigh(cov)
    largest = abs(values).max(-1, keepdims=True, initial=0)
    rounding = largest * values.shape[-1] * jnp.finfo(values.dtype).eps
    # Rounding makes a zero eigenvalue of a singular covariance negative; its root has no derivative.
    positive = values > rounding
    root = jnp.sqrt(jnp.where(positive, values, 1))
    root = jnp.where(positive, root, jnp.where(values < -rounding, jnp.nan, 0))
    return vectors * root[..., None, :]
