"""States that one does not see: Kalman filter, hidden Markov chain, capture and recapture."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt


def local_linear_trend():
    """A Kalman filter with level and slope, by scan over 2 by 2 matrices."""
    rng = np.random.default_rng(81)
    y = np.cumsum(0.1 + 0.3 * rng.normal(size=150)) + rng.normal(size=150)
    T, Z = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0])
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0, shape=2)
        noise = pm.HalfNormal("noise", 1.0)
        start = pm.Normal("start", 0.0, 1.0, shape=2)

        def step(y, a, P, scale, noise):
            a, P = pt.dot(T, a), T @ P @ T.T + pt.diag(scale**2)
            v, F = y - pt.dot(Z, a), Z @ P @ Z + noise**2
            gain = pt.dot(P, Z) / F
            return a + gain * v, P - pt.outer(gain, pt.dot(Z, P)), -0.5 * (pt.log(F) + v**2 / F)

        _, _, logp = pytensor.scan(
            step,
            sequences=[pt.as_tensor(y)],
            outputs_info=[start, pt.eye(2), None],
            non_sequences=[scale, noise],
            return_updates=False,
        )
        pm.Potential("y", pt.sum(logp))
    return model


def hidden_markov_chain():
    """Three regimes with their means and scales: the forward algorithm in logs, by scan."""
    rng = np.random.default_rng(82)
    y = rng.normal(np.repeat([-2.0, 0.0, 3.0, 0.0], 75), 1.0)
    with pm.Model() as model:
        transition = pm.Dirichlet("transition", np.ones((3, 3)) + 4 * np.eye(3))
        means, scales = pm.Normal("means", [-2, 0, 2], 2.0), pm.HalfNormal("scales", 1.0, shape=3)
        emissions = pm.logp(pm.Normal.dist(means, scales), y[:, None])
        log_transition = pt.log(transition)
        forward = pytensor.scan(
            lambda e, a, A: e + pt.logsumexp(a[:, None] + A, axis=0),
            sequences=[emissions[1:]],
            outputs_info=[emissions[0] - np.log(3.0)],
            non_sequences=[log_transition],
            return_updates=False,
        )
        pm.Potential("y", pt.logsumexp(forward[-1]))
    return model


def capture_recapture():
    """Cormack-Jolly-Seber: survival and capture by year, releases by year of the next capture."""
    rng = np.random.default_rng(83)
    years = 8
    seen = np.triu(rng.poisson(12.0, size=(years - 1, years - 1)))
    table = np.column_stack([seen, rng.poisson(40.0, size=years - 1)])
    with pm.Model() as model:
        mean, spread = pm.Normal("mean", 1.0, 1.0), pm.HalfNormal("spread", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=years - 1)
        survive = pm.math.invlogit(mean + spread * z)
        capture = pm.Beta("capture", 2.0, 2.0, shape=years - 1)
        log_survive, log_unseen = pt.log(survive), pt.log1p(-capture)
        alive = pt.cumsum(log_survive)
        unseen = pt.cumsum(log_unseen)
        # Released in year i, seen next in year j: survives i to j, not seen i to j - 1, seen in j.
        until = (alive + unseen - log_unseen + pt.log(capture))[None, :]
        since = (alive - log_survive + unseen - log_unseen)[:, None]
        cells = np.triu(np.ones((years - 1, years - 1))) * pt.exp(until - since)
        p = pt.concatenate([cells, 1 - pt.sum(cells, axis=1, keepdims=True)], axis=1)
        pm.Multinomial("y", table.sum(axis=1), pt.clip(p, 1e-12, 1.0), observed=table)
    return model


MODELS = (local_linear_trend, hidden_markov_chain, capture_recapture)
