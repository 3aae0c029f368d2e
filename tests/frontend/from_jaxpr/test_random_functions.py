"""Random functions of JAX, with loops and branches in each other, read into the IR, against XLA.

A seed is the name of a case: ``pytest -k "seed-17"`` runs it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import loopax
from tests.frontend.from_jaxpr.importing import assert_same, in_the_ir

ROWS, COLUMNS = 3, 4
Value = Any
Choice = Callable[[np.random.Generator, list[Value]], Value]


def _pick(
    rng: np.random.Generator, values: list[Value], kind: str, ndim: int | None = None
) -> Value:
    """One of the values of a kind (``"f"``, ``"i"`` or ``"b"``), and of a rank, if there is one."""
    fitting = [v for v in values if v.dtype.kind == kind and ndim in (None, v.ndim)]
    if not fitting:
        return {"f": jnp.asarray(0.5), "i": jnp.asarray(2), "b": jnp.asarray(True)}[kind]
    return fitting[rng.integers(len(fitting))]


def _unary(rng: np.random.Generator, values: list[Value]) -> Value:
    functions = [
        jnp.sin,
        jnp.tanh,
        jnp.exp,
        jnp.abs,
        jnp.sign,
        jax.nn.sigmoid,
        jnp.square,
        jnp.floor,
    ]
    return functions[rng.integers(len(functions))](jnp.clip(_pick(rng, values, "f"), -5, 5))


def _binary(rng: np.random.Generator, values: list[Value]) -> Value:
    functions = [
        jnp.add,
        jnp.subtract,
        jnp.multiply,
        jnp.maximum,
        jnp.minimum,
        jnp.arctan2,
        jnp.fmod,
    ]
    x, y = _pick(rng, values, "f"), _pick(rng, values, "f")
    if x.shape != y.shape:
        x, y = jnp.ravel(x)[0], y
    return functions[rng.integers(len(functions))](x, y)


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
    x, y = _pick(rng, values, "i", 0), _pick(rng, values, "i", 0)
    return functions[rng.integers(len(functions))](x, y)


def _comparison(rng: np.random.Generator, values: list[Value]) -> Value:
    x, y = _pick(rng, values, "f", 0), _pick(rng, values, "f", 0)
    return [jnp.less, jnp.greater_equal, jnp.not_equal][rng.integers(3)](x, y)


def _choice(rng: np.random.Generator, values: list[Value]) -> Value:
    x = _pick(rng, values, "f")
    return jnp.where(_pick(rng, values, "b", 0), x, 0.5 * x)


def _conversion(rng: np.random.Generator, values: list[Value]) -> Value:
    if rng.integers(2):
        return (10 * _pick(rng, values, "f", 0)).astype(int)
    return 0.1 * (_pick(rng, values, "i", 0) % 7).astype(float)


def _read(rng: np.random.Generator, values: list[Value]) -> Value:
    x, i = _pick(rng, values, "f", 1 + rng.integers(2)), _pick(rng, values, "i", 0)
    if x.ndim == 0:
        return x
    places = jnp.stack([i, i + 1, -i])
    return [
        lambda: x[i],
        lambda: x[..., i],
        lambda: x[places],
        lambda: lax.dynamic_slice_in_dim(x, i, 2),
        lambda: x.at[places].get(mode="fill", fill_value=0.25),
    ][rng.integers(5)]()


def _write(rng: np.random.Generator, values: list[Value]) -> Value:
    x, i = _pick(rng, values, "f", 1 + rng.integers(2)), _pick(rng, values, "i", 0)
    y = _pick(rng, values, "f", 0)
    if x.ndim == 0:
        return x
    return [
        lambda: x.at[i].set(y),
        lambda: x.at[i].add(y),
        lambda: x.at[jnp.stack([i, i])].add(y),
        lambda: lax.dynamic_update_slice_in_dim(x, 2 * x[:1], i, 0),
    ][rng.integers(4)]()


def _reshape(rng: np.random.Generator, values: list[Value]) -> Value:
    x = _pick(rng, values, "f", 1 + rng.integers(2))
    if x.ndim == 0:
        return jnp.full(ROWS, x)
    return [
        lambda: x[::-1],
        lambda: x.T,
        lambda: jnp.roll(x, 1, 0),
        lambda: jnp.concatenate([x[1:], x[:1]]),
        lambda: jnp.pad(x, 1)[1:-1] if x.ndim == 1 else jnp.pad(x, 1)[:-2, 1:-1],
        lambda: x.reshape(-1)[: x.shape[0]],
    ][rng.integers(6)]()


def _reduction(rng: np.random.Generator, values: list[Value]) -> Value:
    x = _pick(rng, values, "f", 1 + rng.integers(2))
    functions = [jnp.sum, jnp.max, jnp.mean, jnp.argmax, jax.nn.logsumexp, lambda x: jnp.sum(x, -1)]
    return functions[rng.integers(len(functions))](x) if x.ndim else x


def _product(rng: np.random.Generator, values: list[Value]) -> Value:
    x = _pick(rng, values, "f", 2)
    return jnp.tanh(x @ x.T)[0] if x.ndim else x


def _loop(rng: np.random.Generator, values: list[Value], depth: int) -> list[Value]:
    carry = [_pick(rng, values, "f"), _pick(rng, values, "f", 0), _pick(rng, values, "i", 0)]
    captured, seed = list(values), int(rng.integers(2**31))

    def step(carry: Any, row: Any) -> Any:
        inner = np.random.default_rng(seed)
        made = _statements(inner, [*captured, *carry, row], 4, depth + 1)
        following = [_of_type(made, x) for x in carry]
        return following, made[-1]

    if rng.integers(3):
        xs = jnp.linspace(0.0, 1.0, 5)
        final, trace = lax.scan(step, carry, xs, reverse=bool(rng.integers(2)))
        return [*final, trace] if trace.ndim < 3 else final
    goes_on = lambda c: (c[0] < 4) & (jnp.abs(c[1][1]) < 100)  # noqa: E731
    body = lambda c: (c[0] + 1, step(c[1], jnp.asarray(0.3))[0])  # noqa: E731
    return list(lax.while_loop(goes_on, body, (0, carry))[1])


def _branch(rng: np.random.Generator, values: list[Value], depth: int) -> list[Value]:
    x = _pick(rng, values, "f")
    seeds = rng.integers(2**31, size=3)

    def branch(seed: int) -> Any:
        return lambda x: _of_type(
            _statements(np.random.default_rng(seed), [*values, x], 3, depth + 1), x
        )

    index = (
        _pick(rng, values, "i", 0) if rng.integers(2) else _pick(rng, values, "b", 0).astype(int)
    )
    return [lax.switch(index, [branch(int(s)) for s in seeds], x)]


def _of_type(values: list[Value], like: Value) -> Value:
    """The last of ``values`` of the shape and dtype of ``like``, which is one of them."""
    fitting = [v for v in values if (v.shape, v.dtype) == (like.shape, like.dtype)]
    x = fitting[-1]
    return jnp.clip(x, -50, 50) if x.dtype.kind == "f" else x


SIMPLE: list[Choice] = [_unary, _binary, _integers, _comparison, _choice, _conversion]
SIMPLE += [_read, _write, _reshape, _reduction, _product]


def _statements(rng: np.random.Generator, values: list[Value], n: int, depth: int) -> list[Value]:
    made = list(values)
    for _ in range(n):
        kind = rng.integers(len(SIMPLE) + 3)
        if kind < len(SIMPLE) or depth > 2:
            made.append(jnp.asarray(SIMPLE[kind % len(SIMPLE)](rng, made)))
        else:
            made += (_branch if kind == len(SIMPLE) else _loop)(rng, made, depth)
    return made


def random_function(seed: int) -> Callable[..., Any]:
    """A function of a number, a vector, a matrix and an integer, which a seed writes."""

    def f(a: Any, v: Any, m: Any, n: Any) -> Any:
        rng = np.random.default_rng(seed)
        made = _statements(rng, list(map(jnp.asarray, (a, v, m, n))), 5, 0)
        return made[4:] + _loop(rng, made, 1)

    return f


ARGUMENTS = (
    0.7,
    np.linspace(-1.0, 1.0, ROWS),
    np.random.default_rng(1).normal(size=(ROWS, COLUMNS)),
    3,
)


@pytest.mark.parametrize("seed", [pytest.param(k, id=f"seed-{k}") for k in range(60)])
def test_it_means_what_xla_computes(seed: int) -> None:
    f = random_function(seed)
    assert_same(in_the_ir(f, *ARGUMENTS), jax.jit(f)(*ARGUMENTS), f"seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(k, id=f"seed-{k}") for k in range(100, 115)])
def test_native_code_and_its_derivatives_are_those_of_xla(seed: int) -> None:
    f = random_function(seed)
    fast = loopax.native(f, loops="native")
    assert_same(fast(*ARGUMENTS), jax.jit(f)(*ARGUMENTS), f"seed {seed}")

    def total(g: Any) -> Any:
        def of_floats(a: Any, v: Any, m: Any) -> Any:
            outs = g(a, v, m, ARGUMENTS[3])
            return sum(jnp.sum(jnp.sin(x)) for x in outs if x.dtype.kind == "f")

        return jax.jit(jax.jacfwd(of_floats, (0, 1, 2)))(*ARGUMENTS[:3])

    assert_same(total(fast), total(f), f"derivatives, seed {seed}")
