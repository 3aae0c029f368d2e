"""Dynamic programming: tables that are filled row by row, or cell by cell."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions.function import JaxFunction, draws


def time_warping(xs, ys):
    costs = (xs[:, None] - ys) ** 2

    def row(above, cost):
        def cell(left, entries):
            c, up, diagonal = entries
            best = c + jnp.minimum(jnp.minimum(left, up), diagonal)
            return best, best

        shifted = jnp.concatenate([jnp.full(1, 1e10, above.dtype), above[:-1]])
        return lax.scan(cell, 1e10, (cost, above, shifted))[1], None

    return lax.scan(row, jnp.cumsum(costs[0]), costs[1:])[0][-1]


def knapsack(values, weights):
    capacities = jnp.arange(101)

    def item(best, both):
        value, weight = both
        with_item = best[jnp.maximum(capacities - weight, 0)] + value
        return jnp.where(capacities >= weight, jnp.maximum(best, with_item), best), None

    return lax.scan(item, jnp.zeros(101), (values, weights))[0][-1]


def edit_distance(p, first, second):
    def row(above, both):
        i, a = both

        def cell(left, entries):
            up, diagonal, b = entries
            best = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + jnp.where(a == b, 0, 1))
            return best, best

        cells = lax.scan(cell, i + 1, (above[1:], above[:-1], second))[1]
        return jnp.concatenate([(i + 1)[None], cells]), None

    start = jnp.arange(second.shape[0] + 1)
    return p[0] * lax.scan(row, start, (jnp.arange(first.shape[0]), first))[0][-1]


def beam_search(scores, start):
    """Scores of each step, as a decoder gives them: those of one matrix tie along its cycles."""
    logs = jax.nn.log_softmax(scores, axis=2)
    n = logs.shape[1]

    def step(carry, now):
        total, last = carry
        total, chosen = lax.top_k((total[:, None] + now[last]).reshape(-1), 4)
        return (total, chosen % n), chosen // n

    (total, _), came_from = lax.scan(step, (*lax.top_k(start, 4),), logs)
    return total.sum() + came_from.sum()


def recursion_by_index(p, x):
    """A series that is written entry by entry, as one writes it in NumPy."""

    def step(i, carry):
        total, y = carry
        value = p[0] * jnp.where(i > 0, y[i - 1], 0.0) + p[1] * x[i]
        return total + value**2, y.at[i].set(value)

    return lax.fori_loop(0, x.shape[0], step, (0.0, jnp.zeros_like(x)))[0]


def counts_by_group(x, groups):
    def step(totals, i):
        k = groups[i]
        return totals.at[k].add(jnp.tanh(x[i]) + 0.1 * totals[(k + 1) % 10]), None

    return (lax.scan(step, jnp.zeros(10), jnp.arange(x.shape[0]))[0] ** 2).sum()


_INTEGERS = np.random.default_rng(2).integers

FUNCTIONS = {
    "time_warping": JaxFunction(time_warping, (draws(100), draws(80))),
    "knapsack": JaxFunction(knapsack, (np.abs(draws(30)) + 1, _INTEGERS(1, 20, 30))),
    "edit_distance": JaxFunction(
        edit_distance, (np.array([1.0]), _INTEGERS(0, 4, 80), _INTEGERS(0, 4, 70)), False
    ),
    "beam_search": JaxFunction(beam_search, (draws(50, 20, 20), draws(20)), False),
    "recursion_by_index": JaxFunction(recursion_by_index, (np.array([0.5, 0.3]), draws(200))),
    "counts_by_group": JaxFunction(counts_by_group, (draws(200), _INTEGERS(0, 10, 200))),
}
