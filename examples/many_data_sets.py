"""Many data sets, each fitted in a process of an executor.

Each series is an autoregression with a persistence and a scale of its own. The likelihood goes to the
processes with the data: a function of `loopax.jaxify` is pickled as its program, and a process that
receives it reads the native code from the cache. Nothing here is about one machine:
`dask.distributed.Client.map` and `joblib.Parallel` take the same `fit`.

    python -m examples.many_data_sets
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytensor.tensor as pt
from scipy.optimize import minimize

import loopax

SERIES, STEPS = 24, 400


def build():
    """Value and gradient of minus the log-likelihood of a series, a function of (theta, series).

    ``theta`` is the persistence and the log of the scale.
    """
    theta, series = pt.dvector("theta"), pt.dvector("series")
    persistence, scale = theta[0], pt.exp(theta[1])

    def step(before, now):
        return now, 0.5 * (
            (now - persistence * before) / scale
        ) ** 2 + pt.log(scale)

    _, terms = loopax.scan(step, 0.0, series)
    return loopax.value_and_grad(
        loopax.jaxify([theta, series], terms.sum(), backend="numba")
    )


def fit(value_and_gradient, series):
    """The persistence and the scale that make a series most likely."""
    persistence, log_scale = minimize(
        value_and_gradient, np.zeros(2), args=(series,), jac=True, tol=1e-9
    ).x
    return persistence, np.exp(log_scale)


def fit_all(value_and_gradient, data, processes=2):
    """The fits of all data sets, in their order."""
    # The threads of XLA do not survive a fork, the default on Linux before Python 3.14.
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn")
    ) as executor:
        one_fit, share = (
            partial(fit, value_and_gradient),
            -(-len(data) // processes),
        )
        return np.array(list(executor.map(one_fit, data, chunksize=share)))


def simulated(seed=2026):
    rng = np.random.default_rng(seed)
    data = np.zeros((SERIES, STEPS))
    persistence = rng.uniform(-0.9, 0.9, SERIES)
    noise = rng.normal(size=data.shape) * rng.uniform(0.5, 2.0, (SERIES, 1))
    data[:, 0] = noise[:, 0]
    for t in range(1, STEPS):
        data[:, t] = persistence * data[:, t - 1] + noise[:, t]
    return data


def main():
    for k, (persistence, scale) in enumerate(fit_all(build(), simulated())):
        print(
            f"series {k}: persistence {persistence:.3f}, scale {scale:.3f}"
        )


if __name__ == "__main__":
    main()
