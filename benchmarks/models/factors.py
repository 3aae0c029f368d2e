"""Products of unknown matrices: factorisation, a Bayesian neural network."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def matrix_factorisation():
    """Ratings of 1600 users and 1000 items by ten factors, 26,000 parameters, 20,000 ratings seen."""
    rng = np.random.default_rng(101)
    user, item = rng.integers(0, 1600, 20_000), rng.integers(0, 1000, 20_000)
    ratings = rng.normal(size=20_000)
    with pm.Model() as model:
        users = pm.Normal("users", 0.0, 0.5, shape=(1600, 10))
        items = pm.Normal("items", 0.0, 0.5, shape=(1000, 10))
        noise = pm.HalfNormal("noise", 1.0)
        pm.Normal("y", pt.sum(users[user] * items[item], axis=1), noise, observed=ratings)
    return model


def full_factorisation():
    """A table of 400 by 250 as the product of two matrices, all of it compared, gaps left out after."""
    rng = np.random.default_rng(102)
    table = rng.normal(size=(400, 250))
    rows, columns = np.nonzero(rng.random(table.shape) < 0.3)
    with pm.Model() as model:
        left = pm.Normal("left", 0.0, 0.5, shape=(400, 40))
        right = pm.Normal("right", 0.0, 0.5, shape=(250, 40))
        mu = pt.dot(left, right.T)
        pm.Normal("y", mu[rows, columns], 0.5, observed=table[rows, columns])
    return model


def neural_network():
    """Two hidden layers of ten, a sigmoid at the end, 500 points in the plane."""
    rng = np.random.default_rng(103)
    x = rng.normal(size=(500, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with pm.Model() as model:
        x, y = pm.Data("x", x), pm.Data("labels", y)
        w1 = pm.Normal("w1", 0.0, 1.0, shape=(2, 10))
        w2 = pm.Normal("w2", 0.0, 1.0, shape=(10, 10))
        w3 = pm.Normal("w3", 0.0, 1.0, shape=10)
        hidden = pt.tanh(pt.dot(pt.tanh(pt.dot(x, w1)), w2))
        pm.Bernoulli("y", pm.math.sigmoid(pt.dot(hidden, w3)), observed=y)
    return model


MODELS = (matrix_factorisation, full_factorisation, neural_network)
