"""Missing values that are parameters: masked arrays, one regression feeding the next, a mask by hand."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def missing_outcomes():
    """A regression on a masked array of outcomes, whose gaps PyMC makes parameters."""
    rng = np.random.default_rng(61)
    x = rng.normal(size=(200, 2))
    y = x @ [1.0, -0.5] + rng.normal(size=200)
    y = np.ma.masked_array(y, mask=rng.random(200) < 0.2)
    with pm.Model() as model:
        slopes, scale = pm.Normal("slopes", 0.0, 1.0, shape=2), pm.HalfNormal("scale", 1.0)
        with_gaps(pm.Normal, "y", pt.dot(x, slopes), scale, observed=y)
    return model


def chained_imputation():
    """Three covariates with gaps, each a regression on those before, all in that of the outcome."""
    rng = np.random.default_rng(62)
    n = 250
    first = rng.normal(size=n)
    second = 0.5 * first + rng.normal(size=n)
    third = 0.3 * first - 0.4 * second + rng.normal(size=n)
    outcome = first + second - third + rng.normal(size=n)
    masked = [np.ma.masked_array(v, mask=rng.random(n) < 0.15) for v in (first, second, third)]
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0, shape=4)
        a = pm.Normal("a", 0.0, 1.0, shape=4)
        b = pm.Normal("b", 0.0, 1.0, shape=6)
        x1 = with_gaps(pm.Normal, "x1", a[0], scale[0], observed=masked[0])
        x2 = with_gaps(pm.Normal, "x2", a[1] + b[0] * x1, scale[1], observed=masked[1])
        mu = a[2] + b[1] * x1 + b[2] * x2
        x3 = with_gaps(pm.Normal, "x3", mu, scale[2], observed=masked[2])
        mu = a[3] + b[3] * x1 + b[4] * x2 + b[5] * x3
        pm.Normal("y", mu, scale[3], observed=outcome)
    return model


def filled_in_by_hand():
    """Gaps of a table of covariates set into it by `set_subtensor`, as one does without masked arrays."""
    rng = np.random.default_rng(63)
    x = rng.normal(size=(150, 5))
    y = x @ rng.normal(size=5) + rng.normal(size=150)
    rows, columns = np.nonzero(rng.random(x.shape) < 0.1)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 1.0, shape=5)
        spread = pm.HalfNormal("spread", 1.0, shape=5)
        gaps = pm.Normal("gaps", mean[columns], spread[columns], shape=len(rows))
        table = pt.set_subtensor(pt.as_tensor(x)[rows, columns], gaps)
        slopes, scale = pm.Normal("slopes", 0.0, 1.0, shape=5), pm.HalfNormal("scale", 1.0)
        pm.Potential("x", pt.sum(pm.logp(pm.Normal.dist(mean, spread), table)))
        pm.Normal("y", table @ slopes, scale, observed=y)
    return model


def with_gaps(distribution, name, *parameters, observed):
    """An observed variable of a masked array, without PyMC's warning that it imputes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Data in .* contains missing values")
        return distribution(name, *parameters, observed=observed)


MODELS = (missing_outcomes, chained_imputation, filled_in_by_hand)
