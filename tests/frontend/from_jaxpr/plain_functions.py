"""Functions as people write them in plain JAX, with a loop of small steps each, and arguments for them.

Most are those of the benchmarks, here for all dtypes and transformations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions import FUNCTIONS


class Plain(NamedTuple):
    """A function of its first argument, an array of parameters, and of data.

    ``loops`` is how many loops its value has that run natively; ``reverse`` whether JAX has a reverse mode
    for it, which a ``while_loop`` has not.
    """

    f: Callable[..., Any]
    args: tuple[Any, ...]
    loops: int = 1
    reverse: bool = True


def kalman(p: Any, seen: Any) -> Any:
    a = jnp.array([[1.0, 1.0], [0.0, 0.9]]) * p[0]
    q, r = jnp.eye(2) * jnp.exp(p[1]), jnp.exp(p[2])
    h = jnp.array([1.0, 0.0])

    def step(carry: Any, y: Any) -> Any:
        m, c = carry
        m, c = a @ m, a @ c @ a.T + q
        s = h @ c @ h + r
        gain = c @ h / s
        error = y - h @ m
        m, c = m + gain * error, c - jnp.outer(gain, h @ c)
        return (m, c), -0.5 * (jnp.log(2 * jnp.pi * s) + error**2 / s)

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), seen)[1].sum()


def particle_filter(p: Any, seen: Any, key: Any) -> Any:
    n = 20

    def step(carry: Any, y: Any) -> Any:
        particles, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        particles = p[0] * particles + p[1] * jax.random.normal(k1, (n,), p.dtype)
        logw = -0.5 * (y - particles) ** 2
        weights = jax.nn.softmax(logw)
        places = (jax.random.uniform(k2, (), p.dtype) + jnp.arange(n)) / n
        chosen = jnp.clip(jnp.searchsorted(jnp.cumsum(weights), places), 0, n - 1)
        return (particles[chosen], key), jax.nn.logsumexp(logw) - jnp.log(n)

    start = jnp.zeros(n, p.dtype), jax.random.PRNGKey(key)
    return lax.scan(step, start, seen)[1].sum()


def adaptive_steps(p: Any) -> Any:
    def goes_on(carry: Any) -> Any:
        return carry[0] < 1.0

    def step(carry: Any) -> Any:
        t, y, h = carry
        h = jnp.minimum(h, 1.0 - t)
        euler = y + h * (-p[0] * y)
        middle = y + h * (-p[0] * (y + h / 2 * (-p[0] * y)))
        error = jnp.abs(middle - euler)
        accepted = error < 1e-3
        factor = jnp.clip(0.9 * jnp.sqrt(1e-3 / (error + 1e-12)), 0.2, 5.0)
        return jnp.where(accepted, t + h, t), jnp.where(accepted, middle, y), h * factor

    start = jnp.zeros_like(p[0]), p[1], jnp.full_like(p[0], 0.01)
    return lax.while_loop(goes_on, step, start)[1]


def knapsack(p: Any, weights: Any) -> Any:
    capacity = 15

    def item(best: Any, both: Any) -> Any:
        value, weight = both

        def fill(c: Any, table: Any) -> Any:
            old = lax.dynamic_index_in_dim(best, c, keepdims=False)
            smaller = jnp.where(c >= weight, best[jnp.maximum(c - weight, 0)] + value, -jnp.inf)
            new = jnp.maximum(old, smaller)
            return lax.dynamic_update_slice(table, new[None], (c,))

        return lax.fori_loop(0, capacity + 1, fill, best), None

    return lax.scan(item, jnp.zeros(capacity + 1, p.dtype), (p, weights))[0][-1]


def regimes(p: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        level, regime = carry
        level = lax.switch(
            regime, [lambda y: p[0] * y + x, lambda y: jnp.tanh(y) - x, lambda y: p[1] * x], level
        )
        regime = lax.cond(level > 0, lambda: (regime + 1) % 3, lambda: jnp.asarray(0))
        return (level, regime), level

    return lax.scan(step, (jnp.asarray(0.1, p.dtype), jnp.asarray(0)), xs)[1].sum()


def collatz(p: Any, n: Any) -> Any:
    def goes_on(carry: Any) -> Any:
        return carry[0] != 1

    def step(carry: Any) -> Any:
        n, count, total = carry
        n = jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
        return n, count + 1, total + p[0] * (n & 7)

    _, count, total = lax.while_loop(goes_on, step, (n, 0, jnp.zeros((), p.dtype)))
    return total + count


# Of the benchmarks, and whether JAX has a reverse mode for them.
_SHARED = {
    **dict.fromkeys(("garch", "hidden_markov_in_logs", "recurrent_net", "lstm", "epidemic"), True),
    **dict.fromkeys(("bisection", "runge_kutta", "ctc", "time_warping", "q_learning"), True),
    **dict.fromkeys(("tridiagonal", "running_sums", "beam_search", "metropolis"), True),
    **dict.fromkeys(("hamiltonian_monte_carlo", "heat", "life"), True),
    **dict.fromkeys(("gillespie", "newton"), False),
}


def plain_functions() -> dict[str, Plain]:
    """Each function by its name, with arguments of float64."""
    draw = np.random.default_rng(20240607).normal
    shared = {
        name: Plain(FUNCTIONS[name].f, FUNCTIONS[name].args, 1 + (name == "tridiagonal"), reverse)
        for name, reverse in _SHARED.items()
    }
    return shared | {
        "kalman": Plain(kalman, (np.array([0.9, -1.0, 0.3]), draw(size=20))),
        "particle_filter": Plain(particle_filter, (np.array([0.9, 0.4]), draw(size=12), 3)),
        "adaptive_steps": Plain(adaptive_steps, (np.array([3.0, 1.5]),), reverse=False),
        "knapsack": Plain(knapsack, (draw(size=6) ** 2 + 1, np.array([3, 4, 2, 7, 5, 1]))),
        "regimes": Plain(regimes, (np.array([0.9, 1.2]), draw(size=25))),
        "collatz": Plain(collatz, (np.array([0.5]), 27), reverse=False),
    }
