"""Times until something happens: parametric, piecewise, with frailty."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def times(seed, n):
    """Covariates (n, 3), times and whether the event was seen (n,)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    time, end = rng.weibull(1.5, n) * np.exp(x @ [0.3, -0.2, 0.1]), rng.uniform(0.5, 3.0, n)
    return x, np.minimum(time, end), time <= end


def weibull_accelerated():
    """Accelerated failure times: Weibull where the event was seen, its survival where not."""
    x, time, seen = times(111, 400)
    with pm.Model() as model:
        slopes, shape = pm.Normal("slopes", 0.0, 1.0, shape=3), pm.Gamma("shape", 2.0, 1.0)
        scale = pt.exp(pm.Normal("level", 0.0, 1.0) + pt.dot(x, slopes))
        pm.Weibull("seen", shape, scale[seen], observed=time[seen])
        pm.Potential("censored", -pt.sum((time[~seen] / scale[~seen]) ** shape))
    return model


def piecewise_hazard():
    """Cox's model with a hazard constant in each of 12 intervals, as Poisson counts."""
    x, time, seen = times(112, 300)
    edges = np.linspace(0.0, 3.0, 13)
    exposure = np.clip(time[:, None] - edges[None, :-1], 0.0, np.diff(edges))
    last = np.minimum(np.searchsorted(edges, time) - 1, 11)
    died = np.zeros((300, 12))
    died[np.arange(300), last] = seen
    with pm.Model() as model:
        hazard = pm.Gamma("hazard", 0.1, 0.1, shape=12)
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
        rate = pt.outer(pt.exp(pt.dot(x, slopes)), hazard)
        pm.Poisson("y", exposure * rate + 1e-9, observed=died.astype(int))
    return model


def frailty():
    """Weibull hazards of patients in 50 clinics, each with a gamma frailty."""
    x, time, seen = times(113, 600)
    clinic = np.random.default_rng(114).integers(0, 50, 600)
    with pm.Model() as model:
        theta = pm.Gamma("theta", 2.0, 1.0)
        frail = pm.Gamma("frail", theta, theta, shape=50)
        slopes, shape = pm.Normal("slopes", 0.0, 1.0, shape=3), pm.Gamma("shape", 2.0, 1.0)
        level = pm.Normal("level", 0.0, 1.0)
        log_rate = level + x @ slopes + pt.log(frail)[clinic]
        log_hazard = log_rate + pt.log(shape) + (shape - 1) * np.log(time)
        hazard_until = pt.exp(log_rate) * time**shape
        pm.Potential("y", pt.sum(seen * log_hazard - hazard_until))
    return model


MODELS = (weibull_accelerated, piecewise_hazard, frailty)
