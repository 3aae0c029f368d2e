"""Stochastic volatility: a latent path of three hundred days

In a GARCH model the past returns determine the volatility. Here the volatility is a random
process of its own (Kim, Shephard and Chib 1998, Review of Economic Studies 65, 361):

    r[t] ~ N(0, exp(h[t])),   h[t+1] = mu + phi (h[t] - mu) + sigma eta[t],   eta[t] ~ N(0, 1)

The sampler draws the innovations eta[t], three hundred unknowns, and a loop turns them into the
path h[t]. The data are the last three hundred returns of the mark against the
pound.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
from loopax.demo.gallery import log_densities, pytensor_scan, read

returns = read("mark_pound")[-300:]
returns = returns - returns.mean()

# %%


def build(scan):
    with pm.Model() as model:
        mu = pm.Normal("mu", -1.5, 1.0)
        phi = pm.Beta("phi", 20.0, 1.5)
        sigma = pm.HalfNormal("sigma", 0.5)
        innovations = pm.Normal("innovations", shape=len(returns))

        def day(h, eta):
            h = mu + phi * (h - mu) + sigma * eta
            return h, h

        start = mu + sigma / pt.sqrt(1 - phi**2) * innovations[0]
        _, later = scan(day, start, innovations[1:])
        h = pm.Deterministic("h", pt.concatenate([start[None], later]))
        pm.Normal("returns", 0.0, pt.exp(h / 2), observed=returns)
    return model


model = build(loopax.scan)

# %%
# Compare with the same model written with `pytensor.scan` and compiled by PyMC:

log_densities(model, own=build(pytensor_scan))

# %%

sampling = {
    "draws": 200,
    "tune": 300,
    "chains": 2,
    "cores": 1,
    "seed": 1,
    "progress": False,
}
trace = loopax.pymc.sample(
    model, sampler="pymc", target_accept=0.9, quiet=True, **sampling
)
posterior = trace.posterior
for name in ("mu", "phi", "sigma"):
    draws = posterior[name].values
    low, high = np.quantile(draws, [0.05, 0.95])
    print(f"{name:6}{draws.mean():8.3f}   90 % {low:7.3f} to {high:7.3f}")
volatility = np.exp(posterior["h"].values / 2)
# In the mean, the model has the variance of the data.
assert 0.6 < (volatility**2).mean() / returns.var() < 1.6

# %%

low, middle, high = np.quantile(volatility, [0.05, 0.5, 0.95], axis=(0, 1))
day_number = np.arange(len(returns))
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(
    day_number,
    np.abs(returns),
    ".",
    color="0.6",
    markersize=3,
    label="size of the return",
)
axes.fill_between(day_number, low, high, alpha=0.25, linewidth=0)
axes.plot(day_number, middle, color="#1f5f8b", label="volatility")
axes.set(
    xlabel="trading day",
    ylabel="per cent",
    title="Volatility: median and 90 % of the posterior",
)
axes.legend(frameon=False)
axes.margins(x=0.01)
