"""Outcomes of which one sees a part: ordinal, censored, truncated, chosen among several."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def ordinal():
    """Ordered logistic regression on five levels."""
    rng = np.random.default_rng(51)
    x = rng.normal(size=(500, 4))
    y = np.digitize(x @ rng.normal(size=4) + rng.logistic(size=500), [-2.0, -0.5, 0.5, 2.0])
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=4)
        cuts = pm.Normal(
            "cuts",
            0.0,
            3.0,
            shape=4,
            transform=pm.distributions.transforms.ordered,
            initval=np.linspace(-1.0, 1.0, 4),
        )
        pm.OrderedLogistic("y", eta=x @ slopes, cutpoints=cuts, observed=y)
    return model


def censored():
    """A regression whose outcome is cut off on both sides (a Tobit model)."""
    rng = np.random.default_rng(52)
    x = rng.normal(size=400)
    y = np.clip(0.5 + x + rng.normal(size=400), -1.0, 2.0)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 2.0), pm.Normal("b", 0.0, 2.0)
        latent = pm.Normal.dist(a + b * x, pm.HalfNormal("scale", 2.0))
        pm.Censored("y", latent, lower=-1.0, upper=2.0, observed=y)
    return model


def censored_with_imputation():
    """The same kind of data, the censored values as parameters between the limit and infinity."""
    rng = np.random.default_rng(53)
    y = rng.normal(2.0, 2.0, 300)
    low, high = y < 0.0, y > 4.0
    with pm.Model() as model:
        mu, scale = pm.Normal("mu", 0.0, 5.0), pm.HalfNormal("scale", 5.0)
        pm.Normal("seen", mu, scale, observed=y[~low & ~high])
        below = pm.distributions.transforms.Interval(None, 0.0)
        above = pm.distributions.transforms.Interval(4.0, None)
        start = -np.ones(low.sum())
        pm.Normal("low", mu, scale, shape=start.shape, initval=start, transform=below)
        start = 5.0 * np.ones(high.sum())
        pm.Normal("high", mu, scale, shape=start.shape, initval=start, transform=above)
    return model


def truncated():
    """A regression of what was kept because it is positive."""
    rng = np.random.default_rng(54)
    x = rng.normal(size=500)
    y = 0.5 + x + rng.normal(size=500)
    x, y = x[y > 0], y[y > 0]
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 2.0), pm.Normal("b", 0.0, 2.0)
        pm.TruncatedNormal("y", a + b * x, pm.HalfNormal("scale", 2.0), lower=0.0, observed=y)
    return model


def mixed_logit():
    """Choices among four, tastes of 60 people drawn from a normal with an LKJ prior."""
    rng = np.random.default_rng(55)
    person = np.repeat(np.arange(60), 8)
    x = rng.normal(size=(480, 4, 3))
    choice = rng.integers(0, 4, 480)
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        mean = pm.Normal("mean", 0.0, 1.0, shape=3)
        z = pm.Normal("z", 0.0, 1.0, shape=(60, 3))
        tastes = mean + pt.dot(z, chol.T)
        utility = pt.sum(x * tastes[person][:, None, :], axis=-1)
        pm.Categorical("choice", logit_p=utility, observed=choice)
    return model


MODELS = (ordinal, censored, censored_with_imputation, truncated, mixed_logit)
