"""Loops with random draws: epidemics, particles, jumps, and samplers."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions.function import JaxFunction, draws


def epidemic(p, seed):
    def day(carry, key):
        s, i, r = carry
        noise = jax.random.normal(key, (2,), p.dtype)
        infected = p[0] * s * i * jnp.exp(0.1 * noise[0])
        recovered = p[1] * i * jnp.exp(0.1 * noise[1])
        return (s - infected, i + infected - recovered, r + recovered), i

    keys = jax.random.split(jax.random.key(seed), 200)
    return lax.scan(day, (0.99, 0.01, 0.0), keys)[1].sum()


def epidemic_of_persons(p, seed):
    def day(carry, key):
        s, i = carry
        k1, k2 = jax.random.split(key)
        infected = jnp.minimum(jax.random.poisson(k1, p[0] * s * i / 1000.0), s)
        recovered = jnp.minimum(jax.random.poisson(k2, p[1] * i), i)
        return (s - infected, i + infected - recovered), i

    keys = jax.random.split(jax.random.PRNGKey(seed), 100)
    return lax.scan(day, (990.0, 10.0), keys)[1].sum()


def particle_filter(p, ys, seed):
    n = 100

    def step(carry, y):
        x, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        x = p[0] * x + p[1] * jax.random.normal(k1, (n,))
        logs = -0.5 * (y - x) ** 2
        chosen = jax.random.categorical(k2, logs, shape=(n,))
        return (x[chosen], key), jax.nn.logsumexp(logs) - jnp.log(n)

    return lax.scan(step, (jnp.zeros(n), jax.random.PRNGKey(seed)), ys)[1].sum()


def gillespie(p, seed):
    def goes_on(carry):
        return (carry[0] < 50.0) & (carry[1] > 0)

    def event(carry):
        t, x, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        birth, total = p[0], p[0] + p[1] * x
        t = t + jax.random.exponential(k1, dtype=p.dtype) / total
        return (
            t,
            jnp.where(jax.random.uniform(k2, dtype=p.dtype) < birth / total, x + 1, x - 1),
            key,
        )

    t, x, _ = lax.while_loop(goes_on, event, (0.0, 10.0, jax.random.PRNGKey(seed)))
    return t + x


def metropolis(p, seed):
    def density(x):
        return -0.5 * jnp.sum((x - p[0]) ** 2) / p[1] ** 2

    def step(carry, key):
        x, old = carry
        k1, k2 = jax.random.split(key)
        proposal = x + 0.5 * jax.random.normal(k1, (5,), p.dtype)
        new = density(proposal)
        accepts = jnp.log(jax.random.uniform(k2, dtype=p.dtype)) < new - old
        return (jnp.where(accepts, proposal, x), jnp.where(accepts, new, old)), x

    keys = jax.random.split(jax.random.PRNGKey(seed), 1000)
    start = jnp.zeros(5, p.dtype)
    return lax.scan(step, (start, density(start)), keys)[1].mean()


def hamiltonian_monte_carlo(p, start, seed):
    def potential(x):
        return jnp.sum(jnp.cos(p[0] * x)) + 0.5 * jnp.sum(x**2) / p[1]

    slope = jax.grad(potential)

    def leap(_, carry):
        x, v = carry
        v = v - 0.05 * slope(x)
        x = x + 0.1 * v
        return x, v - 0.05 * slope(x)

    def draw(x, key):
        k1, k2 = jax.random.split(key)
        momentum = jax.random.normal(k1, x.shape, x.dtype)
        y, v = lax.fori_loop(0, 10, leap, (x, momentum))
        gain = potential(x) - potential(y) + 0.5 * (momentum @ momentum - v @ v)
        x = jnp.where(jnp.log(jax.random.uniform(k2, dtype=x.dtype)) < gain, y, x)
        return x, x

    return lax.scan(draw, start, jax.random.split(jax.random.PRNGKey(seed), 100))[1].mean()


def diffusion(p, seed):
    noise = 0.1 * jax.random.normal(jax.random.key(seed), (500, 4))

    def step(x, w):
        x = x + 0.01 * p[0] * (1 - x) + p[1] * jnp.sqrt(jnp.abs(x) + 1e-6) * w
        return x, x

    return lax.scan(step, jnp.ones(4), noise)[1].mean()


FUNCTIONS = {
    "epidemic": JaxFunction(epidemic, (np.array([0.5, 0.2]), 7)),
    "epidemic_of_persons": JaxFunction(epidemic_of_persons, (np.array([0.3, 0.1]), 7), False),
    "particle_filter": JaxFunction(particle_filter, (np.array([0.9, 0.4]), draws(100), 3)),
    "gillespie": JaxFunction(gillespie, (np.array([4.0, 0.3]), 5), False),
    "metropolis": JaxFunction(metropolis, (np.array([0.5, 1.5]), 3), False),
    "hamiltonian_monte_carlo": JaxFunction(
        hamiltonian_monte_carlo, (np.array([0.3, 0.9]), draws(10), 4), False
    ),
    "diffusion": JaxFunction(diffusion, (np.array([0.5, 0.1]), 5)),
}
