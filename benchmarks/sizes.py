"""Loops of vectors and matrices of several sizes, as `jaxify` chooses, beside the same by hand in JAX.

The other programs here have few numbers in a step. With more, other things decide: how LLVM treats a loop
of 20 elements or of 40, which values a backward loop stores, and whether arrays leave the caches.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from jax import lax
from jax.scipy.special import logsumexp

import loopax
from benchmarks.kernels import beside
from benchmarks.measure import own_cache
from benchmarks.report import SIZES, Figure

LIMITS = {"forward": 1.0, "gradient": 1.0}


class Library(NamedTuple):
    """The functions by which a program is written for loopax or for JAX."""

    numpy: Any
    scan: Callable[..., Any]
    logsumexp: Callable[..., Any]
    softmax: Callable[..., Any]


LOOPAX = Library(pt, loopax.scan, pt.logsumexp, pt.special.softmax)
JAX = Library(jnp, lax.scan, logsumexp, jax.nn.softmax)


def hidden_markov(library: Library, logits, means, seen):
    np_, transitions = library.numpy, library.softmax(logits, axis=1)

    def step(chances, y):
        chances = (chances @ transitions) * np_.exp(-0.5 * (y - means) ** 2)
        total = chances.sum()
        return chances / total, np_.log(total)

    return library.scan(step, np_.exp(0 * means), seen)[1].sum()


def hidden_markov_in_logs(library: Library, logits, means, seen):
    def step(logs, y):
        logs = library.logsumexp(logs[:, None] + logits, axis=0) - 0.5 * (y - means) ** 2
        return logs, None

    return library.logsumexp(library.scan(step, 0 * means, seen)[0])


def recurrent_net(library: Library, weights, bias, xs):
    def step(h, x):
        h = library.numpy.tanh(weights @ h + bias * x)
        return h, h.sum()

    return (library.scan(step, 0 * bias, xs)[1] ** 2).sum()


def kalman(library: Library, dynamics, loading, ys):
    np_, noise = library.numpy, library.numpy.eye(dynamics.shape[0])

    def step(carry, y):
        m, p = carry
        m, p = dynamics @ m, dynamics @ p @ dynamics.T + noise
        s, error = loading @ p @ loading + 1.0, y - loading @ m
        gain = p @ loading / s
        return (m + gain * error, p - np_.outer(gain, loading @ p)), np_.log(s) + error**2 / s

    return library.scan(step, (0 * loading, noise), ys)[1].sum()


def panel(library: Library, start, slopes, shocks):
    """Volatilities of many series."""

    def step(variances, r):
        variances = 0.1 + slopes * variances + 0.1 * r**2
        return variances, (library.numpy.log(variances) + r**2 / variances).sum()

    return library.scan(step, start, shocks)[1].sum()


def _matrix_and_vector(n: int, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [0.5 * rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=n), rng.normal(size=steps)]


def _series(n: int, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    return [np.ones(n), np.full(n, 0.8), rng.normal(size=(steps, n))]


# By name: the function, its arguments for a size and a number of steps, the sizes, and the steps.
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...], int]] = {
    "HMM": (hidden_markov, _matrix_and_vector, (6, 12, 20, 48, 300), 200),
    "HMM in logs": (hidden_markov_in_logs, _matrix_and_vector, (6, 12, 20, 48), 200),
    "RNN": (recurrent_net, _matrix_and_vector, (6, 12, 20, 48, 200), 200),
    "Kalman": (kalman, _matrix_and_vector, (6, 12, 20, 40), 100),
    "panel": (panel, _series, (20, 1_000, 20_000), 200),
}


def sizes(pairs: int, say: Callable[[str], None]) -> Iterator[Figure]:
    for name, (f, arguments, lengths, steps) in PROGRAMS.items():
        for n in lengths:
            values = arguments(n, steps)
            for comparison, limit in LIMITS.items():
                say(f"sizes, {name} {n}, {comparison}")
                with own_cache():
                    measured = _compared(f, values, comparison, pairs)
                yield Figure(f"{name} {n}", comparison, SIZES, limit, measured)


def _compared(f: Callable, values: list[np.ndarray], comparison: str, pairs: int) -> Any:
    inputs = [pt.tensor(f"x{k}", dtype="float64", shape=x.shape) for k, x in enumerate(values)]
    out, args = f(LOOPAX, *inputs), [jnp.asarray(x) for x in values]

    def by_hand(*xs: Any) -> Any:
        return f(JAX, *xs)

    return beside(lambda: loopax.jaxify(inputs, out), by_hand, args, comparison, (0, 1), pairs)
