"""The programs of `native_programs` as an expert writes them in JAX; those of `programs` are there.

`lax.scan` for loops of a known number of steps. Newton's method is a `lax.while_loop` in the forward pass.
JAX has no reverse mode of that, so its derivatives go through a scan of as many steps as the most it takes,
in which what has converged stays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp


def gaussian(y: Any, mean: Any) -> Any:
    return -0.5 * (y[:, None] - mean) ** 2 - 0.5 * np.log(2 * np.pi)


def hmm(start: Any, A: Any, mean: Any, y: Any) -> Any:
    b = jnp.exp(gaussian(y, mean))

    def step(alpha: Any, b: Any) -> Any:
        alpha = (alpha @ A) * b
        c = alpha.sum()
        return alpha / c, jnp.log(c)

    first = start * b[0]
    _, logs = lax.scan(step, first / first.sum(), b[1:])
    return jnp.log(first.sum()) + logs.sum()


def hmm_log(start: Any, A: Any, mean: Any, y: Any) -> Any:
    b = gaussian(y, mean)

    def step(alpha: Any, b: Any) -> Any:
        most = alpha.max()
        return jnp.log(jnp.exp(alpha - most) @ A) + most + b, None

    alpha, _ = lax.scan(step, jnp.log(start) + b[0], b[1:])
    return logsumexp(alpha)


def rnn(x: Any, h0: Any, target: Any, U: Any, W: Any, b: Any) -> Any:
    h, _ = lax.scan(lambda h, x: (jnp.tanh(x @ U + h @ W + b), None), h0, x)
    return jnp.sum((h - target) ** 2)


def runge_kutta(
    a: Any, b: Any, c: Any, d: Any, u0: Any, v0: Any, dt: Any, u_data: Any, v_data: Any
) -> Any:
    def slope(u: Any, v: Any) -> Any:
        return a * u - b * u * v, c * u * v - d * v

    def step(state: Any, _: Any) -> Any:
        u, v = state
        u1, v1 = slope(u, v)
        u2, v2 = slope(u + dt / 2 * u1, v + dt / 2 * v1)
        u3, v3 = slope(u + dt / 2 * u2, v + dt / 2 * v2)
        u4, v4 = slope(u + dt * u3, v + dt * v3)
        state = (u + dt / 6 * (u1 + 2 * u2 + 2 * u3 + u4), v + dt / 6 * (v1 + 2 * v2 + 2 * v3 + v4))
        return state, state

    _, (u, v) = lax.scan(step, (u0, v0), None, length=u_data.shape[0])
    return jnp.sum((u - u_data) ** 2 + (v - v_data) ** 2)


def nested(k: Any, c: Any, z0: Any, f: Any, y: Any) -> Any:
    def outer(z: Any, f: Any) -> Any:
        def inner(z: Any, _: Any) -> Any:
            return z + 0.05 * (f - k * z - c * z**3), None

        z, _ = lax.scan(inner, z, None, length=20)
        return z, z

    _, z = lax.scan(outer, z0, f)
    return jnp.sum((z - y) ** 2)


# -- Newton's method -----------------------------------------------------------------------------------


def until_converged(step: Callable, x: Any, most: int) -> Any:
    def going(state: Any) -> Any:
        k, x, change = state
        return (k < most) & (change >= 1e-10)

    def body(state: Any) -> Any:
        k, x, _ = state
        new = step(x)
        return k + 1, new, jnp.abs(new - x)

    return lax.while_loop(going, body, (0, x, jnp.inf))[1]


def masked(step: Callable, x: Any, most: int) -> Any:
    """The same with a derivative."""

    def body(state: Any, _: Any) -> Any:
        x, going = state
        new = jnp.where(going, step(x), x)
        return (new, going & (jnp.abs(new - x) >= 1e-10)), None

    return lax.scan(body, (x, True), None, length=most)[0][0]


def newton(loop: Callable, m: Any, e: Any) -> Any:
    return loop(lambda E: E - (E - e * jnp.sin(E) - m) / (1 - e * jnp.cos(E)), m, 50)


def newton_many(loop: Callable, m: Any, e: Any) -> Any:
    """One after the other: side by side by ``vmap`` all of them take the steps of the slowest."""
    return jnp.sum(lax.map(lambda m: newton(loop, m, e), m) ** 2)


def newton_data(loop: Callable, start: Any, scale: Any, y: Any) -> Any:
    def step(x: Any) -> Any:
        z = (y - x) / scale
        w = 1 / (1 + z**2)
        return x + scale * (z * w).sum() / ((1 - z**2) * w**2).sum()

    return loop(step, start, 100) ** 2


def twice(f: Callable) -> tuple[Callable, Callable]:
    return partial(f, until_converged), partial(f, masked)


NEWTON, NEWTON_MANY, NEWTON_DATA = map(twice, (newton, newton_many, newton_data))
