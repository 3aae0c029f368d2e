"""Functions as people write them in plain JAX, with a loop of small steps each, and arguments for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Plain(NamedTuple):
    """A function of its first argument, an array of parameters, and of data.

    ``loops`` is how many loops its value has that run natively; ``reverse`` whether JAX has a reverse mode
    for it, which a ``while_loop`` has not.
    """

    f: Callable[..., Any]
    args: tuple[Any, ...]
    loops: int = 1
    reverse: bool = True


def garch(p: Any, returns: Any) -> Any:
    def day(variance: Any, r: Any) -> Any:
        variance = p[0] + p[1] * r**2 + p[2] * variance
        return variance, jnp.log(variance) + r**2 / variance

    return -0.5 * lax.scan(day, jnp.var(returns), returns)[1].sum()


def hidden_markov(p: Any, seen: Any) -> Any:
    transition = jax.nn.log_softmax(p[:9].reshape(3, 3), axis=1)
    means = p[9:12]

    def step(alpha: Any, y: Any) -> Any:
        alpha = jax.nn.logsumexp(alpha[:, None] + transition, axis=0) - 0.5 * (y - means) ** 2
        return alpha, None

    alpha, _ = lax.scan(step, jnp.zeros(3), seen)
    return jax.nn.logsumexp(alpha)


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


def recurrent_network(p: Any, xs: Any) -> Any:
    w, u, b = p[:16].reshape(4, 4), p[16:24].reshape(4, 2), p[24:28]

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(w @ h + u @ x + b)
        return h, h

    return jnp.mean(lax.scan(step, jnp.zeros(4), xs)[1] ** 2)


def gru(p: Any, xs: Any) -> Any:
    w = p[:36].reshape(3, 3, 4)

    def step(h: Any, x: Any) -> Any:
        both = jnp.concatenate([h, x[:1]])
        z, r = jax.nn.sigmoid(w[0] @ both), jax.nn.sigmoid(w[1] @ both)
        candidate = jnp.tanh(w[2] @ jnp.concatenate([r * h, x[:1]]))
        return (1 - z) * h + z * candidate, None

    return lax.scan(step, jnp.zeros(3), xs)[0].sum()


def epidemic_with_draws(p: Any, key: Any) -> Any:
    def day(carry: Any, key: Any) -> Any:
        s, i, r = carry
        noise = jax.random.normal(key, (2,), p.dtype)
        infected = p[0] * s * i * jnp.exp(0.1 * noise[0])
        recovered = p[1] * i * jnp.exp(0.1 * noise[1])
        return (s - infected, i + infected - recovered, r + recovered), i

    start = (jnp.asarray(0.99, p.dtype), jnp.asarray(0.01, p.dtype), jnp.asarray(0.0, p.dtype))
    return lax.scan(day, start, jax.random.split(jax.random.key(key), 30))[1].sum()


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


def gillespie(p: Any, key: Any) -> Any:
    def goes_on(carry: Any) -> Any:
        t, x, _ = carry
        return (t < 5.0) & (x > 0)

    def event(carry: Any) -> Any:
        t, x, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        birth, death = p[0] * 1.0, p[1] * x
        total = birth + death
        t = t + jax.random.exponential(k1, dtype=p.dtype) / total
        is_birth = jax.random.uniform(k2, dtype=p.dtype) < birth / total
        return t, jnp.where(is_birth, x + 1, x - 1), key

    start = jnp.asarray(0.0, p.dtype), jnp.asarray(10.0, p.dtype), jax.random.PRNGKey(key)
    t, x, _ = lax.while_loop(goes_on, event, start)
    return t + x


def newton(p: Any, xs: Any) -> Any:
    def goes_on(carry: Any) -> Any:
        x, step, n = carry
        return (jnp.abs(step) > 1e-6) & (n < 50)

    def improve(carry: Any) -> Any:
        x, _, n = carry
        step = (x**3 - p[0] * x - p[1]) / (3 * x**2 - p[0])
        return x - step, step, n + 1

    def solve(x: Any) -> Any:
        return lax.while_loop(goes_on, improve, (x, jnp.ones_like(x), 0))[0]

    return jax.vmap(solve)(xs).sum()


def bisection(p: Any) -> Any:
    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = 0.5 * (low + high)
        is_below = jnp.cos(middle) * p[0] > middle * p[1]
        return jnp.where(is_below, middle, low), jnp.where(is_below, high, middle)

    low, high = lax.fori_loop(0, 40, halve, (jnp.zeros_like(p[0]), jnp.ones_like(p[0])))
    return low + high + p[0]


def runge_kutta(p: Any) -> Any:
    def slope(y: Any) -> Any:
        return jnp.stack([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])

    def step(y: Any, _: Any) -> Any:
        h = 0.05
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        k4 = slope(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    return lax.scan(step, jnp.ones(2, p.dtype), None, length=60)[1].sum()


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


def ctc(p: Any, labels: Any) -> Any:
    logits = jax.nn.log_softmax(p.reshape(-1, 4), axis=1)
    extended = jnp.zeros(2 * labels.shape[0] + 1, int).at[1::2].set(labels)
    same = jnp.concatenate([jnp.array([True, True]), extended[2:] == extended[:-2]])

    def step(alpha: Any, row: Any) -> Any:
        one = jnp.concatenate([jnp.full(1, -1e5, alpha.dtype), alpha[:-1]])
        two = jnp.concatenate([jnp.full(2, -1e5, alpha.dtype), alpha[:-2]])
        two = jnp.where(same, -1e5, two)
        alpha = jnp.logaddexp(jnp.logaddexp(alpha, one), two) + row[extended]
        return alpha, None

    start = jnp.full(extended.shape[0], -1e5, p.dtype).at[0].set(0.0)
    alpha, _ = lax.scan(step, start, logits)
    return -jnp.logaddexp(alpha[-1], alpha[-2])


def time_warping(p: Any, xs: Any) -> Any:
    costs = (p[:, None] - xs[None, :]) ** 2

    def row(above: Any, cost: Any) -> Any:
        def cell(left: Any, both: Any) -> Any:
            c, up, diagonal = both
            best = c + jnp.minimum(jnp.minimum(left, up), diagonal)
            return best, best

        shifted = jnp.concatenate([jnp.full(1, 1e10, above.dtype), above[:-1]])
        _, new = lax.scan(cell, jnp.asarray(1e10, above.dtype), (cost, above, shifted))
        return new, None

    return lax.scan(row, jnp.cumsum(costs[0]), costs[1:])[0][-1]


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


def q_learning(p: Any, key: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        q, state, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        explores = jax.random.uniform(k1) < 0.3
        action = jnp.where(explores, jax.random.randint(k2, (), 0, 2), jnp.argmax(q[state]))
        following = (state + 2 * action - 1) % 5
        reward = jnp.where(following == 4, p[0], 0.0)
        target = reward + p[1] * jnp.max(q[following])
        q = q.at[state, action].add(p[2] * (target - q[state, action]))
        return (q, following, key), reward

    start = jnp.zeros((5, 2), p.dtype), jnp.asarray(2), jax.random.PRNGKey(key)
    (q, _, _), _ = lax.scan(step, start, None, length=60)
    return q.sum()


def tridiagonal(p: Any, right: Any) -> Any:
    n = right.shape[0]
    a, b, c = jnp.full(n, p[0]), jnp.full(n, p[1]), jnp.full(n, p[2])

    def forward(carry: Any, row: Any) -> Any:
        c1, d1 = carry
        a, b, c, d = row
        m = b - a * c1
        return (c / m, (d - a * d1) / m), (c / m, (d - a * d1) / m)

    def backward(x: Any, row: Any) -> Any:
        c1, d1 = row
        x = d1 - c1 * x
        return x, x

    zero = jnp.zeros((), p.dtype)
    _, (c1, d1) = lax.scan(forward, (zero, zero), (a, b, c, right))
    return lax.scan(backward, zero, (c1, d1), reverse=True)[1].sum()


def prefix_sums(p: Any) -> Any:
    def step(total: Any, x: Any) -> Any:
        total = total + x
        return total, total

    return (lax.scan(step, jnp.zeros((), p.dtype), p)[1] * jnp.arange(p.shape[0])).sum()


def beam_search(p: Any, start: Any) -> Any:
    scores = jax.nn.log_softmax(p.reshape(4, 4), axis=1)

    def step(carry: Any, _: Any) -> Any:
        total, last = carry
        every = (total[:, None] + scores[last]).reshape(-1)
        total, chosen = lax.top_k(every, 3)
        return (total, chosen % 4), chosen // 4

    (total, _), came_from = lax.scan(step, (start, jnp.arange(3, dtype=jnp.int32)), None, length=10)
    return total.sum() + came_from.sum()


def metropolis(p: Any, key: Any) -> Any:
    def density(x: Any) -> Any:
        return -0.5 * jnp.sum((x - p[0]) ** 2) / p[1] ** 2

    def step(carry: Any, key: Any) -> Any:
        x, old = carry
        k1, k2 = jax.random.split(key)
        proposed = x + 0.5 * jax.random.normal(k1, (2,), p.dtype)
        new = density(proposed)
        accepted = jnp.log(jax.random.uniform(k2, dtype=p.dtype)) < new - old
        x, old = jnp.where(accepted, proposed, x), jnp.where(accepted, new, old)
        return (x, old), x

    start = jnp.zeros(2, p.dtype)
    keys = jax.random.split(jax.random.PRNGKey(key), 40)
    return lax.scan(step, (start, density(start)), keys)[1].sum()


def leapfrog(p: Any) -> Any:
    slope = jax.grad(lambda x: jnp.sum(jnp.cos(x * p[0])) + 0.5 * jnp.sum(x**2))

    def step(_: Any, carry: Any) -> Any:
        x, v = carry
        v = v - 0.05 * slope(x)
        x = x + 0.1 * v
        return x, v - 0.05 * slope(x)

    x, v = lax.fori_loop(0, 20, step, (p[1:], jnp.ones_like(p[1:])))
    return jnp.sum(x**2) + jnp.sum(v**2)


def heat(p: Any) -> Any:
    def step(u: Any, _: Any) -> Any:
        padded = jnp.pad(u, 1)
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        return u + p[0] * (around - 4 * u), None

    start = jnp.zeros((6, 6), p.dtype).at[2, 3].set(p[1])
    return (lax.scan(step, start, None, length=12)[0] ** 2).sum()


def game_of_life(p: Any, cells: Any) -> Any:
    def step(alive: Any, _: Any) -> Any:
        near = sum(
            jnp.roll(alive, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j
        )
        return ((near == 3) | ((near == 2) & (alive == 1))).astype(alive.dtype), near.sum()

    final, near = lax.scan(step, cells, None, length=8)
    return p[0] * final.sum() + near[-1]


def regimes(p: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        level, regime = carry
        level = lax.switch(
            regime,
            [lambda y: p[0] * y + x, lambda y: jnp.tanh(y) - x, lambda y: p[1] * x],
            level,
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


def _rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


def plain_functions() -> dict[str, Plain]:
    """Each function by its name, with arguments of float64."""
    draw = _rng().normal
    return {
        "garch": Plain(garch, (np.array([0.1, 0.2, 0.7]), draw(size=40))),
        "hidden_markov": Plain(hidden_markov, (draw(size=12), draw(size=25))),
        "kalman": Plain(kalman, (np.array([0.9, -1.0, 0.3]), draw(size=20))),
        "recurrent_network": Plain(recurrent_network, (0.5 * draw(size=28), draw(size=(15, 2)))),
        "gru": Plain(gru, (0.5 * draw(size=36), draw(size=(15, 2)))),
        "epidemic_with_draws": Plain(epidemic_with_draws, (np.array([0.5, 0.2]), 7)),
        "particle_filter": Plain(particle_filter, (np.array([0.9, 0.4]), draw(size=12), 3)),
        "gillespie": Plain(gillespie, (np.array([4.0, 0.3]), 5), reverse=False),
        "newton": Plain(newton, (np.array([2.0, 1.0]), np.linspace(1.2, 4.0, 5)), reverse=False),
        "bisection": Plain(bisection, (np.array([1.0, 1.3]),)),
        "runge_kutta": Plain(runge_kutta, (np.array([0.8, 0.5, 0.4, 0.6]),)),
        "adaptive_steps": Plain(adaptive_steps, (np.array([3.0, 1.5]),), reverse=False),
        "ctc": Plain(ctc, (draw(size=48), np.array([1, 2, 2, 3]))),
        "time_warping": Plain(time_warping, (draw(size=8), draw(size=9))),
        "knapsack": Plain(knapsack, (draw(size=6) ** 2 + 1, np.array([3, 4, 2, 7, 5, 1]))),
        "q_learning": Plain(q_learning, (np.array([1.0, 0.9, 0.2]), 1)),
        "tridiagonal": Plain(tridiagonal, (np.array([0.3, 2.0, 0.4]), draw(size=12)), loops=2),
        "prefix_sums": Plain(prefix_sums, (draw(size=20),)),
        "beam_search": Plain(beam_search, (draw(size=16), np.array([0.0, -1.0, -2.0]))),
        "metropolis": Plain(metropolis, (np.array([0.5, 1.5]), 2)),
        "leapfrog": Plain(leapfrog, (np.array([1.3, 0.2, -0.4, 0.9]),)),
        "heat": Plain(heat, (np.array([0.2, 3.0]),)),
        "game_of_life": Plain(game_of_life, (np.array([2.0]), _rng().integers(0, 2, size=(8, 8)))),
        "regimes": Plain(regimes, (np.array([0.9, 1.2]), draw(size=25))),
        "collatz": Plain(collatz, (np.array([0.5]), 27), reverse=False),
    }
