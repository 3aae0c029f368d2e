"""Regressions of one level: linear, robust, counts, binary, sparse, splines."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def linear_in_containers():
    """Linear regression on `pm.Data`, with a second set of covariates for the scale."""
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(400, 6)), rng.normal(size=(400, 2))
    y = 1.0 + x @ np.linspace(-1.0, 1.0, 6) + np.exp(0.3 * z[:, 0]) * rng.normal(size=400)
    with pm.Model() as model:
        x, z, y = pm.Data("x", x), pm.Data("z", z), pm.Data("outcome", y)
        intercept = pm.Normal("intercept", 0.0, 5.0)
        slopes = pm.Normal("slopes", 0.0, 2.0, shape=6)
        log_scale = pm.Normal("log_scale", 0.0, 1.0)
        spread = pm.Normal("spread", 0.0, 0.5, shape=2)
        scale = pt.exp(log_scale + z @ spread)
        pm.Normal("y", intercept + x @ slopes, scale, observed=y)
    return model


def robust():
    """Linear regression with Student's t errors, degrees of freedom unknown."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 4))
    y = x @ rng.normal(size=4) + rng.standard_t(3.0, size=300)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 2.0, shape=4)
        scale = pm.HalfCauchy("scale", 1.0)
        nu = pm.Gamma("nu", 2.0, 0.1)
        pm.StudentT("y", nu=nu, mu=pt.dot(x, slopes), sigma=scale, observed=y)
    return model


def logistic():
    """Logistic regression with 30 covariates of 1000 people."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1000, 30))
    y = rng.random(1000) < 1 / (1 + np.exp(-x @ rng.normal(0.0, 0.4, 30)))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 2.0)
        slopes = pm.Laplace("slopes", 0.0, 0.5, shape=30)
        pm.Bernoulli("y", logit_p=intercept + x @ slopes, observed=y.astype(int))
    return model


def zero_inflated_counts():
    """Counts with more zeros than a negative binomial has, an exposure and two predictors."""
    rng = np.random.default_rng(4)
    x, exposure = rng.normal(size=(500, 3)), rng.uniform(0.5, 2.0, 500)
    y = rng.poisson(exposure * np.exp(0.5 + x @ [0.3, -0.2, 0.1])) * (rng.random(500) < 0.7)
    with pm.Model() as model:
        intercept, hurdle = pm.Normal("intercept", 0.0, 2.0), pm.Normal("hurdle", 0.0, 2.0)
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
        effects = pm.Normal("effects", 0.0, 1.0, shape=3)
        alpha = pm.Exponential("alpha", 0.5)
        present = pm.math.invlogit(hurdle + x @ effects)
        rate = exposure * pt.exp(intercept + x @ slopes)
        pm.ZeroInflatedNegativeBinomial("y", present, rate, alpha, observed=y)
    return model


def horseshoe():
    """Regularised horseshoe: more covariates than observations, few of which matter."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(80, 120))
    y = x[:, :5] @ [2.0, -1.5, 1.0, 3.0, -2.0] + rng.normal(size=80)
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        tau = pm.HalfStudentT("tau", 2, 0.1)
        lam = pm.HalfStudentT("lam", 2, 1.0, shape=120)
        slab = pm.InverseGamma("slab", 2.0, 2.0)
        shrunk = lam * pt.sqrt(slab / (slab + tau**2 * lam**2))
        z = pm.Normal("z", 0.0, 1.0, shape=120)
        slopes = pm.Deterministic("slopes", z * tau * shrunk)
        pm.Normal("y", pt.dot(x, slopes), scale, observed=y)
    return model


def spline():
    """A curve of cubic B-splines whose coefficients walk at random."""
    from scipy.interpolate import BSpline  # PyMC brings SciPy

    rng = np.random.default_rng(6)
    x = np.sort(rng.uniform(0.0, 10.0, 600))
    y = np.sin(x) + 0.3 * x + rng.normal(0.0, 0.3, 600)
    knots = np.concatenate([[0.0] * 3, np.linspace(0.0, 10.0, 23), [10.0] * 3])
    basis = BSpline.design_matrix(x, knots, 3).toarray()
    with pm.Model() as model:
        smooth = pm.HalfNormal("smooth", 1.0)
        steps = pm.Normal("steps", 0.0, 1.0, shape=basis.shape[1])
        scale = pm.HalfNormal("scale", 1.0)
        curve = pm.Deterministic("curve", basis @ (smooth * pt.cumsum(steps)))
        pm.Normal("y", curve, scale, observed=y)
    return model


MODELS = (linear_in_containers, robust, logistic, zero_inflated_counts, horseshoe, spline)
