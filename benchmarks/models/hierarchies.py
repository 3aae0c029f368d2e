"""Hierarchies: groups by index arrays, varying slopes, crossed and nested levels."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def eight_schools():
    """Eight effects, not centred: the smallest model that is worth a sampler."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)
        z = pm.Normal("z", 0.0, 1.0, shape=8)
        pm.Normal("y", mu + tau * z, sigma, observed=y)
    return model


def varying_intercepts():
    """Intercepts of 85 groups by an index array, with a predictor of the group."""
    rng = np.random.default_rng(11)
    group = rng.integers(0, 85, 900)
    soil, floor = rng.normal(size=85), rng.integers(0, 2, 900)
    y = 1.5 + 0.7 * soil[group] - 0.6 * floor + rng.normal(0.0, 0.8, 900)
    coords = {"county": range(85), "house": range(900)}
    with pm.Model(coords=coords) as model:
        group = pm.Data("group", group, dims="house")
        floor = pm.Data("floor", floor.astype(float), dims="house")
        mean, slope = pm.Normal("mean", 0.0, 5.0), pm.Normal("slope", 0.0, 2.0)
        by_soil, spread = pm.Normal("by_soil", 0.0, 1.0), pm.Exponential("spread", 1.0)
        z = pm.Normal("z", 0.0, 1.0, dims="county")
        intercepts = pm.Deterministic("intercepts", mean + by_soil * soil + spread * z)
        scale = pm.Exponential("scale", 1.0)
        pm.Normal("y", intercepts[group] + slope * floor, scale, observed=y, dims="house")
    return model


def varying_slopes():
    """Intercepts and slopes of 40 groups, their covariance under an LKJ prior."""
    rng = np.random.default_rng(12)
    group, x = rng.integers(0, 40, 600), rng.normal(size=600)
    y = (1.0 + rng.normal(size=40))[group] + (0.5 + 0.3 * rng.normal(size=40))[group] * x
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        mean = pm.Normal("mean", 0.0, 2.0, shape=2)
        z = pm.Normal("z", 0.0, 1.0, shape=(2, 40))
        effects = pm.Deterministic("effects", mean + pt.dot(chol, z).T)
        scale = pm.Exponential("scale", 1.0)
        mu = effects[group, 0] + effects[group, 1] * x
        pm.Normal("y", mu, scale, observed=y + rng.normal(0.0, 0.5, 600))
    return model


def nested_groups():
    """Classes in schools in districts, counts of each pupil."""
    rng = np.random.default_rng(13)
    district_of_school = rng.integers(0, 6, 30)
    school_of_class = rng.integers(0, 30, 120)
    class_of_pupil = rng.integers(0, 120, 1500)
    y = rng.poisson(3.0, 1500)
    with pm.Model() as model:
        level = pm.Normal("level", 1.0, 1.0)
        spread = pm.HalfNormal("spread", 0.5, shape=3)
        district = pm.Normal("district", level, spread[0], shape=6)
        school = pm.Normal("school", district[district_of_school], spread[1], shape=30)
        classes = pm.Normal("classes", school[school_of_class], spread[2], shape=120)
        pm.Poisson("y", pt.exp(classes[class_of_pupil]), observed=y)
    return model


def item_response():
    """Two-parameter item response: 100 people by 20 items, crossed, by two index arrays."""
    rng = np.random.default_rng(14)
    person, item = (k.ravel() for k in np.meshgrid(np.arange(100), np.arange(20), indexing="ij"))
    ability, hard = rng.normal(size=100), rng.normal(size=20)
    y = rng.random(2000) < 1 / (1 + np.exp(hard[item] - ability[person]))
    with pm.Model() as model:
        ability = pm.Normal("ability", 0.0, 1.0, shape=100)
        spread = pm.HalfNormal("spread", 1.0)
        difficulty = pm.Normal("difficulty", 0.0, spread, shape=20)
        sharpness = pm.LogNormal("sharpness", 0.0, 0.5, shape=20)
        logit = sharpness[item] * (ability[person] - difficulty[item])
        pm.Bernoulli("y", logit_p=logit, observed=y.astype(int))
    return model


MODELS = (eight_schools, varying_intercepts, varying_slopes, nested_groups, item_response)
