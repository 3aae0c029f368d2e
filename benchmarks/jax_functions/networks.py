"""Recurrent nets, and rules that learn step by step."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.jax_functions.function import JaxFunction, draws


def recurrent_net(p, xs):
    w, u, b, out = p[:64].reshape(8, 8), p[64:96].reshape(8, 4), p[96:104], p[104:]

    def step(h, x):
        h = jnp.tanh(w @ h + u @ x + b)
        return h, h @ out

    return jnp.mean(lax.scan(step, jnp.zeros(8, p.dtype), xs)[1] ** 2)


def long_short_term_memory(p, xs):
    w = p.reshape(4, 8, 12)

    def step(carry, x):
        h, cell = carry
        both = jnp.concatenate([h, x])
        entry, forget, out = (jax.nn.sigmoid(w[k] @ both) for k in range(3))
        cell = forget * cell + entry * jnp.tanh(w[3] @ both)
        h = out * jnp.tanh(cell)
        return (h, cell), h

    start = jnp.zeros(8, p.dtype)
    return jnp.sum(lax.scan(step, (start, start), xs)[1] ** 2)


def connectionist_temporal_classification(logits, labels):
    logs = jax.nn.log_softmax(logits, axis=1)
    extended = jnp.zeros(2 * labels.shape[0] + 1, int).at[1::2].set(labels)
    is_same = jnp.concatenate([jnp.array([True, True]), extended[2:] == extended[:-2]])

    def step(alpha, row):
        one = jnp.concatenate([jnp.full(1, -1e5, alpha.dtype), alpha[:-1]])
        two = jnp.concatenate([jnp.full(2, -1e5, alpha.dtype), alpha[:-2]])
        two = jnp.where(is_same, -1e5, two)
        return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + row[extended], None

    start = jnp.full(extended.shape[0], -1e5, logs.dtype).at[0].set(0.0)
    alpha = lax.scan(step, start, logs)[0]
    return -jnp.logaddexp(alpha[-1], alpha[-2])


def online_logistic(w, xs, labels):
    def step(w, both):
        x, label = both
        chance = jax.nn.sigmoid(x @ w)
        loss = -jnp.log(jnp.where(label == 1, chance, 1 - chance) + 1e-9)
        return w - 0.1 * (chance - label) * x, loss

    return lax.scan(step, w, (xs, labels))[1].sum()


def adam(p, xs):
    y = xs @ jnp.arange(5.0)

    def loss(w):
        return jnp.mean((xs @ w - y) ** 2)

    def step(_, carry):
        w, mean, square = carry
        slope = jax.grad(loss)(w)
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        return w - 0.05 * mean / (jnp.sqrt(square) + 1e-8), mean, square

    return loss(lax.fori_loop(0, 200, step, (p, jnp.zeros(5), jnp.zeros(5)))[0])


def q_learning(p, seed):
    def step(carry, _):
        q, state, key = carry
        key, k1, k2 = jax.random.split(key, 3)
        explores = jax.random.uniform(k1) < 0.3
        action = jnp.where(explores, jax.random.randint(k2, (), 0, 2), jnp.argmax(q[state]))
        following = (state + 2 * action - 1) % 5
        target = jnp.where(following == 4, p[0], 0.0) + p[1] * jnp.max(q[following])
        q = q.at[state, action].add(p[2] * (target - q[state, action]))
        return (q, following, key), None

    start = jnp.zeros((5, 2), p.dtype), jnp.asarray(2), jax.random.PRNGKey(seed)
    return lax.scan(step, start, None, length=500)[0][0].sum()


_LABELS = (draws(100, 4)[:, 0] > 0).astype(int)

FUNCTIONS = {
    "recurrent_net": JaxFunction(recurrent_net, (0.3 * draws(112), draws(100, 4))),
    "lstm": JaxFunction(long_short_term_memory, (0.3 * draws(384), draws(100, 4))),
    "ctc": JaxFunction(
        connectionist_temporal_classification,
        (draws(60, 10), np.random.default_rng(1).integers(1, 10, 15)),
    ),
    "online_logistic": JaxFunction(online_logistic, (draws(4), draws(100, 4), _LABELS)),
    "adam": JaxFunction(adam, (draws(5), draws(50, 5))),
    "q_learning": JaxFunction(q_learning, (np.array([1.0, 0.9, 0.1]), 3), False),
}
