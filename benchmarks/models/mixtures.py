"""Mixtures, the component marginalised: of normals, of regressions, of counts by document."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def normal_mixture():
    """Three normals with ordered means."""
    rng = np.random.default_rng(31)
    y = rng.normal(rng.choice([-3.0, 0.0, 4.0], 500), 1.0)
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        means = pm.Normal(
            "means",
            [-1.0, 0.0, 1.0],
            5.0,
            transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.0, 1.0],
        )
        scales = pm.HalfNormal("scales", 2.0, shape=3)
        pm.NormalMixture("y", weights, means, scales, observed=y)
    return model


def regressions_mixture():
    """Two regression lines, which of them by a logistic gate: `logaddexp` in a potential."""
    rng = np.random.default_rng(32)
    x = rng.normal(size=400)
    y = np.where(rng.random(400) < 0.4, 1.0 + 2.0 * x, -1.0 - x) + rng.normal(0.0, 0.3, 400)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 3.0, shape=2), pm.Normal("b", 0.0, 3.0, shape=2)
        gate, scale = pm.Normal("gate", 0.0, 1.0, shape=2), pm.HalfNormal("scale", 1.0)
        mu = a[None, :] + x[:, None] * b[None, :]
        logp = pm.logp(pm.Normal.dist(mu, scale), y[:, None])
        logit = gate[0] + gate[1] * x
        first = pm.math.log1pexp(-logit)
        second = pm.math.log1pexp(logit)
        pm.Potential("y", pt.sum(pt.logaddexp(logp[:, 0] - first, logp[:, 1] - second)))
    return model


def topics():
    """Word counts of 40 documents from four topics, marginalised."""
    rng = np.random.default_rng(33)
    counts = rng.poisson(2.0, size=(40, 30))
    with pm.Model() as model:
        topics = pm.Dirichlet("topics", 0.5 * np.ones(30), shape=(4, 30))
        shares = pm.Dirichlet("shares", np.ones(4), shape=(40, 4))
        pm.Multinomial("y", counts.sum(axis=1), pt.dot(shares, topics), observed=counts)
    return model


MODELS = (normal_mixture, regressions_mixture, topics)
