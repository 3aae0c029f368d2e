"""Small models, and what their states and observations are by the density of all of them at once."""

import itertools

import numpy as np
import pytensor.tensor as pt
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from loopax import jaxify

RNG = np.random.default_rng(0)

T, D, P = 5, 2, 1

SPD = np.array([[0.5, 0.1], [0.1, 0.4]])
MODEL = {
    "transition": RNG.normal(size=(D, D)) * 0.6,
    "transition_covariance": SPD,
    "observation": RNG.normal(size=(P, D)),
    "observation_covariance": np.eye(P) * 0.3,
    "initial_mean": np.array([1.0, -1.0]),
    "initial_covariance": SPD + 1,
}
Y = RNG.normal(size=(T, P))


def changing(model):
    """The same model, with matrices for each step, which differ."""
    scale = np.linspace(0.5, 1.5, T)[:, None, None]
    names = list(model)[:4]
    return {k: scale * x if k in names else x for k, x in model.items()}


def joint(model):
    """Mean and covariance of all states, and of all observations given them."""
    of = {k: np.broadcast_to(x, (T, *x.shape[-2:])) for k, x in model.items() if x.ndim > 1}
    means, cov = np.zeros((T, D)), np.zeros((T, D, T, D))
    means[0], cov[0, :, 0] = model["initial_mean"], model["initial_covariance"]
    for t in range(1, T):
        f = of["transition"][t]
        means[t] = f @ means[t - 1]
        cov[t, :, :t] = np.einsum("ij,jsk->isk", f, cov[t - 1, :, :t])
        cov[:t, :, t] = cov[t, :, :t].transpose(1, 2, 0)
        cov[t, :, t] = f @ cov[t - 1, :, t - 1] @ f.T + of["transition_covariance"][t]
    h = np.zeros((T, P, T, D))
    r = np.zeros((T, P, T, P))
    for t in range(T):
        h[t, :, t], r[t, :, t] = of["observation"][t], of["observation_covariance"][t]
    return (means.ravel(), cov.reshape(T * D, -1), h.reshape(T * P, -1), r.reshape(T * P, -1))


def exact(model, y, smoothed=False):
    """Mean and covariance of each state, given what is seen up to it, or given all; the log density."""
    means, cov, h, r = joint(model)
    seen = np.flatnonzero(~np.isnan(y.ravel()))
    h, r = h[seen], r[np.ix_(seen, seen)]
    density = multivariate_normal(h @ means, h @ cov @ h.T + r).logpdf(y.ravel()[seen])
    filtered = []
    for t in range(T):
        now = seen < (T if smoothed else t + 1) * P
        s = h[now] @ cov @ h[now].T + r[np.ix_(now, now)]
        gain = np.linalg.solve(s, h[now] @ cov).T
        mean = means + gain @ (y.ravel()[seen[now]] - h[now] @ means)
        at = slice(t * D, (t + 1) * D)
        filtered.append((mean[at], (cov - gain @ h[now] @ cov)[at, at]))
    return [np.array(x) for x in zip(*filtered, strict=True)], density


def assert_exact(build, model, parallel, missing, smoothed=False):
    """``build`` gives `exact`'s answers, with all of `Y` and without its ``missing`` rows; its function."""
    inputs = variables(model)
    f = jaxify([*inputs.values()], list(build(*inputs.values(), parallel=parallel)[:3]))
    holes = Y.copy()
    holes[missing] = np.nan
    for y in (Y, holes):
        means, covariances, density = f(y, *model.values())
        (want_means, want_covariances), want = exact(model, y, smoothed)
        np.testing.assert_allclose(means, want_means, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(covariances, want_covariances, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(density, want, rtol=1e-10)
    return f


def variables(model):
    return {
        k: pt.TensorType("float64", (None,) * np.ndim(x))(k) for k, x in {"y": Y, **model}.items()
    }


K = 3
INITIAL = np.log(RNG.dirichlet(np.ones(K)))
STAY = np.log(RNG.dirichlet(np.ones(K), size=K))
SEEN = RNG.normal(size=(T, K)) * 3


def all_paths(initial, transition, seen, at=-1):
    """The log probabilities of the states at a step, and the log density: sums over all paths of states."""
    ends = [[] for _ in range(K)]
    for path in itertools.product(range(K), repeat=len(seen)):
        total = initial[path[0]] + seen[0, path[0]]
        for t in range(1, len(seen)):
            total += transition[t, path[t - 1], path[t]] + seen[t, path[t]]
        ends[path[at]].append(total)
    by_end = np.array([logsumexp(x) for x in ends])
    return by_end - logsumexp(by_end), logsumexp(by_end)
