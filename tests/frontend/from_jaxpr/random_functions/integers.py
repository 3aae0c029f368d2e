"""A statement on integers of each dtype, with the least and the greatest of it among them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.frontend.from_jaxpr.random_functions.arrays import Value, one_of, pick

DTYPES = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]


def typed_integers(rng: np.random.Generator, values: list[Value]) -> Value:
    """A function of integers of a random dtype, as a default integer or a vector of such."""
    dtype, i = np.dtype(one_of(rng, DTYPES)), pick(rng, values, "i", 0)
    if i.ndim:
        i = jnp.sum(i)
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.max, limits.min + 1, 0, 1, 7]
    known = jnp.asarray(np.array([one_of(rng, edges) for _ in range(3)], dtype))
    n = i.astype(dtype)
    x = jnp.concatenate([known, jnp.stack([n, n * n, dtype.type(3) - n])])
    x = x[rng.permutation(6)]
    return one_of(rng, [*_of_all(x, i), *_of_each(x, n)])().astype(i.dtype)


def _of_all(x: Value, i: Value) -> list[Any]:
    """Functions of a vector as a whole; ``i`` is any integer."""
    rows = jnp.stack([i, i + 1, -i])
    return [
        lambda: jnp.min(x),
        lambda: jnp.max(x),
        lambda: jnp.min(x.reshape(2, 3), axis=1),
        lambda: jnp.argmin(x),
        lambda: jnp.argmax(x),
        lambda: jnp.sum(x),
        lambda: jnp.prod(x),
        lambda: jnp.cumsum(x),
        lambda: lax.cummin(x, reverse=True),
        lambda: lax.cummax(x),
        lambda: jnp.sort(x),
        lambda: jnp.sort(x, descending=True),
        lambda: jnp.argsort(x),
        lambda: lax.top_k(x, 2)[1],
        lambda: jnp.dot(x, x[::-1]),
        lambda: x.at[i].subtract(x[0]),
        lambda: x.at[rows].subtract(x[1]),
        lambda: x.at[rows].add(x[:3], mode="clip"),
        lambda: x.at[rows].min(x[2], mode="drop"),
        lambda: x.at[rows].get(mode="fill"),
        lambda: jnp.take(x, rows),
        lambda: jnp.searchsorted(jnp.sort(x), x[0]),
    ]


def _of_each(x: Value, n: Value) -> list[Any]:
    """Functions of each element; ``n`` is an integer of the same dtype."""
    return [
        lambda: jnp.abs(x),
        lambda: jnp.sign(x),
        lambda: -x,
        lambda: ~x,
        lambda: x // n,
        lambda: x % n,
        lambda: lax.div(x, n),
        lambda: lax.rem(x, n),
        lambda: x << (n & 7),
        lambda: x >> 3,
        lambda: lax.shift_right_logical(x, jnp.full_like(x, 2)),
        lambda: jnp.clip(x, 1, 5),
        lambda: jnp.maximum(x, n),
        lambda: x.astype("float32").astype(x.dtype),
        lambda: (0.5 * x).astype(x.dtype),
        lambda: x.astype("int8") * 3,
        lambda: lax.population_count(x),
        lambda: x < n,
    ]
