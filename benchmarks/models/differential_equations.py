"""Differential equations that a scan integrates."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt


def predators_and_prey():
    """Lotka-Volterra by Runge-Kutta of fourth order, 200 steps, observed every tenth."""
    rng = np.random.default_rng(91)
    hares = np.exp(rng.normal(3.0, 0.4, size=(20, 2)))
    with pm.Model() as model:
        rates = pm.LogNormal("rates", np.log([0.6, 0.03, 0.8, 0.03]), 0.3)
        start = pm.LogNormal("start", np.log(20.0), 0.5, shape=2)
        scale = pm.Exponential("scale", 2.0, shape=2)

        def slope(u, v, r):
            return u * (r[0] - r[1] * v), v * (r[3] * u - r[2])

        def step(u, v, r, h=0.1):
            k1u, k1v = slope(u, v, r)
            k2u, k2v = slope(u + h / 2 * k1u, v + h / 2 * k1v, r)
            k3u, k3v = slope(u + h / 2 * k2u, v + h / 2 * k2v, r)
            k4u, k4v = slope(u + h * k3u, v + h * k3v, r)
            u = u + h / 6 * (k1u + 2 * k2u + 2 * k3u + k4u)
            return u, v + h / 6 * (k1v + 2 * k2v + 2 * k3v + k4v)

        u, v = pytensor.scan(
            step,
            outputs_info=[start[0], start[1]],
            non_sequences=[rates],
            n_steps=200,
            return_updates=False,
        )
        path = pt.stack([u[9::10], v[9::10]], axis=1)
        pm.LogNormal("y", pt.log(path), scale, observed=hares)
    return model


def epidemic():
    """Susceptible, infected, recovered: 100 days in a scan, cases of each day negative binomial."""
    rng = np.random.default_rng(92)
    cases = rng.poisson(30.0 * np.exp(-(((np.arange(100) - 45) / 20.0) ** 2)) + 1.0)
    with pm.Model() as model:
        spread, recover = pm.LogNormal("spread", -1.0, 0.5), pm.LogNormal("recover", -2.0, 0.5)
        first, alpha = pm.LogNormal("first", 1.0, 1.0), pm.Exponential("alpha", 1.0)

        def step(s, i, spread, recover):
            new = spread * s * i / 5000.0
            return s - new, i + new - recover * i, new

        _, _, new = pytensor.scan(
            step,
            outputs_info=[5000.0 - first, first, None],
            non_sequences=[spread, recover],
            n_steps=100,
            return_updates=False,
        )
        pm.NegativeBinomial("y", new + 1e-3, alpha, observed=cases)
    return model


MODELS = (predators_and_prey, epidemic)
