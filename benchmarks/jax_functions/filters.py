"""Likelihoods of time series and of state spaces, by recursions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions.function import JaxFunction, draws


def garch(p, returns):
    def day(variance, r):
        variance = p[0] + p[1] * r**2 + p[2] * variance
        return variance, jnp.log(variance) + r**2 / variance

    return -0.5 * lax.scan(day, jnp.var(returns), returns)[1].sum()


def arma(p, y):
    def step(carry, now):
        before, error_before = carry
        error = now - p[0] * before - p[1] * error_before
        return (now, error), error

    errors = lax.scan(step, (0.0, 0.0), y)[1]
    return jax.scipy.stats.norm.logpdf(errors, 0, jnp.exp(p[2])).sum()


def stochastic_volatility(p, returns):
    def step(h, r):
        h = p[0] + p[1] * h + p[2] * r
        return h, -0.5 * (h + r**2 * jnp.exp(-h))

    return lax.scan(step, 0.0, returns)[1].sum()


def hawkes(p, times):
    def event(excitation, gap):
        excitation = excitation * jnp.exp(-p[2] * gap)
        return excitation + 1, jnp.log(p[0] + p[1] * excitation)

    logs = lax.scan(event, 0.0, jnp.diff(times, prepend=0.0))[1].sum()
    compensator = p[1] / p[2] * jnp.sum(1 - jnp.exp(-p[2] * (times[-1] - times)))
    return logs - p[0] * times[-1] - compensator


def conditional_durations(p, durations):
    def step(mean, x):
        mean = 0.1 + 0.2 * x * p[1] + 0.9 * p[2] * mean
        return mean, jax.scipy.stats.gamma.logpdf(x, p[0], scale=mean / p[0])

    return lax.scan(step, 1.0, durations)[1].sum()


def hidden_markov_in_logs(p, y):
    transition = jax.nn.log_softmax(p[:9].reshape(3, 3), axis=1)
    emissions = -0.5 * (y[:, None] - p[9:]) ** 2

    def step(alpha, emission):
        return jax.nn.logsumexp(alpha[:, None] + transition, axis=0) + emission, None

    return jax.nn.logsumexp(lax.scan(step, emissions[0], emissions[1:])[0])


def hidden_markov_scaled(p, y):
    transition = jax.nn.softmax(p[:9].reshape(3, 3), axis=1)
    emissions = jnp.exp(-0.5 * (y[:, None] - p[9:]) ** 2)

    def step(carry, emission):
        alpha, total = carry
        alpha = (alpha @ transition) * emission
        scale = alpha.sum()
        return (alpha / scale, total + jnp.log(scale)), None

    return lax.scan(step, (jnp.ones(3) / 3, 0.0), emissions)[0][1]


def viterbi(p, y):
    transition = jax.nn.log_softmax(p, axis=1)
    emissions = -0.5 * (y[:, None] - jnp.arange(6.0)) ** 2

    def forward(score, emission):
        scores = score[:, None] + transition
        return scores.max(0) + emission, scores.argmax(0)

    def backward(state, pointers):
        return pointers[state], pointers[state]

    score, pointers = lax.scan(forward, emissions[0], emissions[1:])
    path = lax.scan(backward, score.argmax(), pointers, reverse=True)[1]
    return score.max() + emissions[jnp.arange(y.shape[0] - 1), path].sum()


def kalman(p, ys):
    a = jnp.eye(4) * p[0] + jnp.eye(4, k=1) * 0.1
    q, r = jnp.eye(4) * jnp.exp(p[1]), jnp.eye(2) * jnp.exp(p[2])
    h = jnp.zeros((2, 4)).at[0, 0].set(1.0).at[1, 2].set(p[3])

    def step(carry, y):
        mean, cov = carry
        mean, cov = a @ mean, a @ cov @ a.T + q
        s = h @ cov @ h.T + r
        gain = jnp.linalg.solve(s, h @ cov).T
        error = y - h @ mean
        fit = jnp.linalg.slogdet(2 * jnp.pi * s)[1] + error @ jnp.linalg.solve(s, error)
        return (mean + gain @ error, cov - gain @ s @ gain.T), -0.5 * fit

    return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), ys)[1].sum()


def extended_kalman(p, ys):
    def moved(x):
        return jnp.stack([x[0] + 0.1 * x[1], x[1] - 0.1 * p[0] * jnp.sin(x[0])])

    def observed(x):
        return jnp.stack([jnp.sin(x[0]), x[1]])

    def step(carry, y):
        mean, cov = carry
        f = jax.jacfwd(moved)(mean)
        mean, cov = moved(mean), f @ cov @ f.T + p[1] * jnp.eye(2)
        h = jax.jacfwd(observed)(mean)
        s = h @ cov @ h.T + 0.1 * jnp.eye(2)
        gain = cov @ h.T @ jnp.linalg.inv(s)
        error = y - observed(mean)
        fit = error @ jnp.linalg.solve(s, error) + jnp.log(jnp.linalg.det(s))
        return (mean + gain @ error, cov - gain @ h @ cov), -0.5 * fit

    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), ys)[1].sum()


_TIMES = np.cumsum(np.abs(draws(400)) + 0.05)

FUNCTIONS = {
    "garch": JaxFunction(garch, (np.array([0.1, 0.2, 0.7]), draws(1000))),
    "arma": JaxFunction(arma, (np.array([0.4, 0.3, 0.2]), draws(300))),
    "stochastic_volatility": JaxFunction(
        stochastic_volatility, (np.array([0.05, 0.2, 0.1]), draws(500))
    ),
    "hawkes": JaxFunction(hawkes, (np.array([0.5, 0.8, 1.2]), _TIMES)),
    "conditional_durations": JaxFunction(
        conditional_durations, (np.array([2.0, 0.7, 0.5]), np.abs(draws(200)) + 0.01)
    ),
    "hidden_markov_in_logs": JaxFunction(hidden_markov_in_logs, (draws(12), draws(500))),
    "hidden_markov_scaled": JaxFunction(hidden_markov_scaled, (draws(12), draws(500))),
    "viterbi": JaxFunction(viterbi, (draws(6, 6), draws(300))),
    "kalman_4": JaxFunction(kalman, (np.array([0.9, -1.0, 0.3, 0.2]), draws(300, 2))),
    "extended_kalman": JaxFunction(extended_kalman, (np.array([0.3, 0.2]), draws(300, 2))),
}
