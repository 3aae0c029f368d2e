"""Statements with bodies: scans, loops with a counter, loops that stop, and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.frontend.from_jaxpr.random_functions.arrays import Value, one_of, pick

Write = Callable[[np.random.Generator, list[Value], int, int], list[Value]]


def of_type(values: list[Value], like: Value) -> Value:
    """The last of ``values`` of the shape and dtype of ``like``, which is one of them."""
    x = next(v for v in reversed(values) if (v.shape, v.dtype) == (like.shape, like.dtype))
    return jnp.clip(x, -50, 50) if x.dtype.kind == "f" else x


def _carries(rng: np.random.Generator, values: list[Value]) -> list[Value]:
    carries = [pick(rng, values, "f"), pick(rng, values, "f", 0), pick(rng, values, "i", 0)]
    carries += [pick(rng, values, "b")] if rng.integers(3) == 0 else []
    carries += [pick(rng, values, "f")] if rng.integers(3) == 0 else []
    carries += [pick(rng, values, "i")] if rng.integers(6) == 0 else []
    return [carries[k] for k in rng.permutation(len(carries))]


def loop(rng: np.random.Generator, values: list[Value], depth: int, write: Write) -> list[Value]:
    """The final carries and traces of a random loop."""
    captured, seed = list(values), int(rng.integers(2**31))
    carries, n = _carries(rng, values), int(rng.integers(2, 5))
    names = [jnp.asarray(x) for x in carries]

    def step(carry: Any, *rows: Any) -> Any:
        inner = np.random.default_rng(seed)
        results = write(inner, [*captured, *carry, *rows], n, depth + 1)
        following = [of_type(results, x) for x in names]
        return following, [x for x in results[-2:] if x.ndim < 2]

    def counted(_: Any, carry: Any) -> Any:
        return step(carry)[0]

    kind = one_of(rng, ["scan", "scan", "scan", "length", "map", "fori", "while", "open fori"])
    if kind == "scan":
        xs = _sequences(rng, values)
        options = {"reverse": bool(rng.integers(2)), "unroll": one_of(rng, [1, 1, 2])}
        body = jax.checkpoint(lambda c, rows: step(c, *rows)) if rng.integers(6) == 0 else None
        final, traces = lax.scan(body or (lambda c, rows: step(c, *rows)), names, xs, **options)
        return [*final, *traces]
    if kind == "length":
        final, traces = lax.scan(lambda c, _: step(c), names, length=one_of(rng, [0, 1, 4]))
        return [*final, *traces]
    if kind == "map":
        xs = _sequences(rng, values)
        return [*lax.map(lambda rows: step(names, *rows)[1], xs)]
    if kind == "fori":
        return list(lax.fori_loop(1, one_of(rng, [1, 2, 5]), counted, names))
    if kind == "open fori":
        bound = jnp.clip(jnp.sum(pick(rng, values, "i", 0)), -1, 4)
        return list(lax.fori_loop(0, bound, counted, names))
    level = next(k for k, x in enumerate(names) if x.dtype.kind == "f")

    def goes_on(state: Any) -> Any:
        return (state[0] < 4) & jnp.all(jnp.abs(state[1][level]) < 20)

    return list(lax.while_loop(goes_on, lambda s: (s[0] + 1, step(s[1])[0]), (0, names))[1])


def _sequences(rng: np.random.Generator, values: list[Value]) -> list[Value]:
    """One or two arrays of floats, integers or flags with equal first lengths."""
    arrays = [v for v in values if v.ndim]
    if rng.integers(3) and arrays:
        first = one_of(rng, arrays)
        others = [v for v in arrays if len(v) == len(first)]
        return [first, one_of(rng, others)][: int(rng.integers(1, 3))]
    n = one_of(rng, [5, 2, 1, 0])
    floats = values[0] * jnp.linspace(0.0, 1.0, n).astype(values[0].dtype)
    return [floats, jnp.arange(n) % 3][: int(rng.integers(1, 3))]


def branch(rng: np.random.Generator, values: list[Value], depth: int, write: Write) -> list[Value]:
    """The results of a conditional with two or three branches."""
    x, y = pick(rng, values, "f"), pick(rng, values, "i")
    seeds = [int(s) for s in rng.integers(2**31, size=int(rng.integers(2, 4)))]

    def written(seed: int) -> Any:
        def of_both(x: Any, y: Any) -> Any:
            results = write(np.random.default_rng(seed), [*values, x, y], 3, depth + 1)
            return [of_type(results, x), of_type(results, y)]

        return of_both

    if len(seeds) == 2:
        flag = jnp.all(pick(rng, values, "b"))
        return list(lax.cond(flag, *map(written, seeds), x, y))
    index = jnp.sum(pick(rng, values, "i", 0))
    return list(lax.switch(index, list(map(written, seeds)), x, y))
