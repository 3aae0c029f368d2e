"""Hares and lynxes: a differential equation in a PyMC model

The numbers of pelts that the Hudson's Bay Company bought each year record the populations of hares
u and of lynxes v, which eat the hares:

    du/dt = (a - b v) u,   dv/dt = (d u - c) v

The model follows Carpenter (2018, Predator-prey population dynamics, a case study in Stan). The
solver is a loop: fourth-order Runge-Kutta steps, ten a year, for twenty years.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
from loopax.demo.gallery import log_densities, pytensor_scan, read

years, hares, lynxes = read("hares_and_lynxes")
counts = np.stack([hares, lynxes], axis=1)
STEPS = 10  # a year

# %%
# The state is a tuple of two numbers. Python calls the step only to record it; the compiled program
# runs the loop.


def populations(rates, start, years, scan):
    """(years, 2): hares and lynxes at the beginning of each year."""

    def change(state):
        u, v = state
        return (rates[0] - rates[1] * v) * u, (rates[3] * u - rates[2]) * v

    def moved(state, slope, by):
        return tuple(x + by * s for x, s in zip(state, slope, strict=True))

    def step(state, _):
        h = 1 / STEPS
        k1 = change(state)
        k2 = change(moved(state, k1, h / 2))
        k3 = change(moved(state, k2, h / 2))
        k4 = change(moved(state, k3, h))
        mean = [
            (a + 2 * b + 2 * c + d) / 6
            for a, b, c, d in zip(k1, k2, k3, k4, strict=True)
        ]
        return moved(state, mean, h), state

    _, path = scan(
        step, (start[0], start[1]), length=STEPS * (years - 1) + 1
    )
    return pt.stack(path, axis=1)[::STEPS]


def build(scan):
    with pm.Model(
        coords={"kind": ["hare", "lynx"], "year": years.astype(int)}
    ) as model:
        growth = pm.TruncatedNormal(
            "growth", [1.0, 1.0], 0.5, lower=0.0, initval=[0.6, 0.8]
        )  # a, c
        meeting = pm.TruncatedNormal(
            "meeting", 0.05, 0.05, lower=0.0, shape=2, initval=[0.03, 0.03]
        )  # b, d
        start = pm.LogNormal(
            "start", np.log(10.0), 1.0, dims="kind", initval=[30.0, 5.0]
        )
        sigma = pm.LogNormal("sigma", -1.0, 1.0, dims="kind")
        rates = growth[0], meeting[0], growth[1], meeting[1]
        path = populations(rates, start, len(years), scan)
        path = pm.Deterministic("path", path, dims=("year", "kind"))
        pm.LogNormal(
            "pelts", pt.log(pt.maximum(path, 1e-9)), sigma, observed=counts
        )
    return model


model = build(loopax.scan)

# %%
# Compare with the same model written with `pytensor.scan` and compiled by PyMC:

log_densities(model, own=build(pytensor_scan))

# %%
# Compare the estimates with the case study's.

sampling = {
    "draws": 400,
    "tune": 600,
    "chains": 2,
    "cores": 1,
    "seed": 1,
    "progress": False,
}
trace = loopax.pymc.sample(model, sampler="pymc", quiet=True, **sampling)
posterior = trace.posterior
published = {
    "growth": (0.55, 0.80),
    "meeting": (0.028, 0.024),
    "start": (33.98, 5.94),
}
for name, means in published.items():
    draws = posterior[name].values
    for j, theirs in enumerate(means):
        mean, deviation = draws[..., j].mean(), draws[..., j].std()
        # Three standard errors of a ninth as many independent draws.
        error = 9 / np.sqrt(draws.size) * deviation
        assert abs(mean - theirs) < error + 0.1 * deviation
        print(
            f"{name}[{j}]".ljust(12)
            + f"{mean:8.3f} +- {deviation:.3f}   Stan {theirs:.3f}"
        )

# %%

figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
for j, (kind, color) in enumerate(
    (("hares", "#1f5f8b"), ("lynxes", "#d1495b"))
):
    low, middle, high = np.quantile(
        posterior["path"].values[..., j], [0.05, 0.5, 0.95], axis=(0, 1)
    )
    axes.fill_between(years, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(years, middle, color=color, label=kind)
    axes.plot(years, counts[:, j], ".", color=color)
axes.set(
    xlabel="year",
    ylabel="thousands of pelts",
    title="Median and 90 % of the populations; points: pelts",
)
axes.legend(frameon=False)
axes.margins(x=0.01)
