"""A random function, written statement by statement from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.frontend.from_jaxpr.random_functions.arrays import ARRAYS, Statement, Value, one_of, pick
from tests.frontend.from_jaxpr.random_functions.control_flow import branch, loop
from tests.frontend.from_jaxpr.random_functions.integers import typed_integers
from tests.frontend.from_jaxpr.random_functions.ranks import stacks
from tests.frontend.from_jaxpr.random_functions.transformed import draws, matrices, transformed


def _unary(rng: np.random.Generator, values: list[Value]) -> Value:
    functions = [jnp.sin, jnp.tanh, jnp.exp, jnp.abs, jnp.sign, jnp.square, jnp.floor, jnp.round]
    functions += [jax.nn.sigmoid, jax.nn.softplus, jax.nn.relu, jnp.arctan, jnp.expm1, jnp.negative]
    functions += [lambda x: jnp.log1p(x * x), lambda x: jnp.sqrt(1 + x * x), lambda x: x**3]
    functions += [lambda x: 1 / (1.5 + jnp.cos(x)), jnp.sinc, jnp.nan_to_num, lax.stop_gradient]
    functions += [lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0)]
    functions += [lambda x: x.astype("float32").astype(x.dtype), jax.scipy.special.erf]
    return one_of(rng, functions)(jnp.clip(pick(rng, values, "f"), -5, 5))


def _binary(rng: np.random.Generator, values: list[Value]) -> Value:
    functions = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.fmod, jnp.mod]
    functions += [
        jnp.logaddexp,
        lambda x, y: x / (1 + y * y),
        lambda x, y: (1 + x * x) ** jnp.tanh(y),
    ]
    functions += [
        lambda x, y: jnp.arctan2(x, 0.5 + y),
        jnp.hypot,
        lambda x, y: jnp.where(x < y, x, y),
    ]
    x, y = pick(rng, values, "f"), pick(rng, values, "f")
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        x, y = jnp.sum(x), y
    return one_of(rng, functions)(x, y)


def _integers(rng: np.random.Generator, values: list[Value]) -> Value:
    functions = [
        jnp.add,
        jnp.multiply,
        jnp.floor_divide,
        jnp.mod,
        lax.rem,
        lax.div,
        jnp.bitwise_xor,
    ]
    functions += [jnp.maximum, lambda x, y: x >> (y & 3), lambda x, y: jnp.where(x < y, -x, y)]
    functions += [
        lambda x, y: x.astype("int8").astype(x.dtype) + y,
        lambda x, y: x - y.astype("uint8"),
    ]
    x, y = pick(rng, values, "i", 0), pick(rng, values, "i", 0)
    if x.ndim or y.ndim:
        x, y = jnp.sum(x), jnp.sum(y)
    return one_of(rng, functions)(x, y.astype(x.dtype))


def _comparison(rng: np.random.Generator, values: list[Value]) -> Value:
    kind = one_of(rng, ["f", "f", "i"])
    x, y = pick(rng, values, kind, 0), pick(rng, values, kind, 0)
    comparisons = [jnp.less, jnp.greater_equal, jnp.not_equal, jnp.equal]
    return one_of(rng, comparisons)(jnp.sum(x), jnp.sum(y))


def _flags(rng: np.random.Generator, values: list[Value]) -> Value:
    x = pick(rng, values, "f")
    cases = [
        lambda: x > 0.25,
        lambda: ~pick(rng, values, "b"),
        lambda: jnp.any(x > 1),
        lambda: jnp.all(x < 2),
    ]
    cases += [
        lambda: jnp.isfinite(x),
        lambda: pick(rng, values, "b", 0) | pick(rng, values, "b", 0),
    ]
    return one_of(rng, cases)()


def _choice(rng: np.random.Generator, values: list[Value]) -> Value:
    x, flag, i = pick(rng, values, "f"), pick(rng, values, "b", 0), pick(rng, values, "i", 0)
    if flag.ndim or i.ndim:
        flag, i = jnp.any(flag), jnp.sum(i)
    cases = [lambda: jnp.where(flag, x, 0.5 * x), lambda: jnp.where(flag, x, i)]
    cases += [lambda: lax.select_n(jnp.clip(i, 0, 2), x, 2 * x, -x), lambda: jnp.where(x > 0, x, 0)]
    return one_of(rng, cases)()


def _conversion(rng: np.random.Generator, values: list[Value]) -> Value:
    x, i = pick(rng, values, "f", 0), pick(rng, values, "i")
    cases = [
        lambda: (10 * jnp.clip(x, -50, 50)).astype(int),
        lambda: 0.1 * (i % 7).astype(values[0].dtype),
    ]
    cases += [
        lambda: pick(rng, values, "b").astype(int),
        lambda: pick(rng, values, "b") * values[0],
    ]
    return one_of(rng, cases)()


SIMPLE: list[Statement] = [_unary, _binary, _integers, _comparison, _flags, _choice, _conversion]
SIMPLE += [typed_integers, *ARRAYS, *ARRAYS, stacks, stacks, transformed, matrices, draws]
SMALL = 40  # elements of the largest array that goes on


def statements(rng: np.random.Generator, values: list[Value], n: int, depth: int) -> list[Value]:
    """``values`` and the results of ``n`` random statements on them."""
    results = list(values)
    for _ in range(n):
        kind = int(rng.integers(len(SIMPLE) + 4))
        if kind < len(SIMPLE) or depth > 2:
            made = [jnp.asarray(SIMPLE[kind % len(SIMPLE)](rng, results))]
        else:
            made = (branch if kind % 2 else loop)(rng, results, depth, statements)
        results += [x for x in made if x.size <= SMALL and x.ndim < 3]
    return results


@dataclass(frozen=True)
class RandomFunction:
    """A function of a number, a vector, a matrix, an integer and a flag, and arguments for it."""

    seed: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def random_function(seed: int) -> RandomFunction:
    """The function that a seed writes, and its arguments: some are empty, of length 1, or have ties."""
    setting = np.random.default_rng([seed, 1])
    rows, columns = one_of(setting, [3, 3, 3, 2, 1, 0]), one_of(setting, [4, 4, 3, 1])

    def numbers(*shape: int) -> Any:
        x = setting.normal(size=shape)
        return np.round(2 * x) / 2 if setting.integers(4) == 0 else x

    arguments = (numbers(), numbers(rows), numbers(rows, columns))
    arguments += (int(setting.integers(-2, 5)), bool(setting.integers(2)))

    def f(a: Any, v: Any, m: Any, n: Any, flag: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = list(map(jnp.asarray, (a, v, m, n, flag)))
        results = statements(rng, values, int(rng.integers(1, 6)), 0)
        return results[5:] + loop(rng, results, 1, statements)

    return RandomFunction(seed, f, arguments)
