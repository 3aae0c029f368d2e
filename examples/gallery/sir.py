"""An epidemic and an intervention: SIR with a falling contact rate

In January 1978 influenza broke out at a boarding school of 763 boys; at the peak 298 were in bed.
Susceptible and infectious boys follow

    dS/dt = -beta(t) S I / N,   dI/dt = beta(t) S I / N - gamma I

Sick boys were put to bed, away from the others. How much did that help? In this model the contact
rate falls on an unknown day to an unknown fraction of its value; without an effect the fraction
is one.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
from loopax.demo.gallery import log_densities, pytensor_scan, read

days, in_bed = read("influenza")
BOYS, STEPS = 763, 10  # steps of the solver a day

# %%
# Heun's method: the carry is a tuple, the row is the time, and the step emits the number of
# infectious boys.


def infectious(beta, gamma, fraction, day, first, n_days, scan):
    """(n_days,) how many boys are infectious on each day."""

    def change(s, i, t):
        contact = beta * (1 - (1 - fraction) * pt.sigmoid(4 * (t - day)))
        new = contact * s * i / BOYS
        return -new, new - gamma * i

    def step(state, t):
        s, i = state
        h = 1 / STEPS
        ds, di = change(s, i, t)
        ds_then, di_then = change(s + h * ds, i + h * di, t + h)
        return (s + h / 2 * (ds + ds_then), i + h / 2 * (di + di_then)), i

    times = np.arange(STEPS * (n_days - 1) + 1) / STEPS + 1
    _, path = scan(step, (BOYS - first, first), pt.constant(times))
    return path[::STEPS]


def build(scan):
    with pm.Model(coords={"day": days.astype(int)}) as model:
        beta = pm.LogNormal("beta", np.log(1.8), 0.5)
        gamma = pm.LogNormal("gamma", np.log(0.5), 0.3)
        fraction = pm.Beta("fraction", 2.0, 1.0)
        day = pm.Normal("day of intervention", 5.0, 2.0)
        first = pm.LogNormal("first", np.log(2.0), 0.7)
        spread = pm.LogNormal("spread", np.log(10.0), 1.0)
        path = infectious(
            beta, gamma, fraction, day, first, len(days), scan
        )
        path = pm.Deterministic("infectious", path, dims="day")
        pm.NegativeBinomial(
            "in bed",
            mu=pt.maximum(path, 1e-6),
            alpha=spread,
            observed=in_bed.astype(int),
        )
    return model


model = build(loopax.scan)

# %%
# Compare with the same model written with `pytensor.scan` and compiled by PyMC:

log_densities(model, own=build(pytensor_scan))

# %%

sampling = {
    "draws": 500,
    "tune": 700,
    "chains": 2,
    "cores": 1,
    "seed": 3,
    "progress": False,
}
trace = loopax.pymc.sample(
    model, sampler="pymc", target_accept=0.95, quiet=True, **sampling
)
posterior = trace.posterior
reproduction = (posterior["beta"] / posterior["gamma"]).values
for name, draws in {
    "reproduction number": reproduction,
    "days in bed": 1 / posterior["gamma"].values,
    "fraction of contacts left": posterior["fraction"].values,
}.items():
    low, high = np.quantile(draws, [0.05, 0.95])
    print(f"{name:26}{draws.mean():6.2f}   90 % {low:5.2f} to {high:5.2f}")
assert 2.5 < reproduction.mean() < 5.0  # 3.5 to 3.8 in the literature

# %%

figure = Figure(figsize=(7, 3.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1.8, 1))
low, middle, high = np.quantile(
    posterior["infectious"].values, [0.05, 0.5, 0.95], axis=(0, 1)
)
left.fill_between(days, low, high, alpha=0.2, linewidth=0)
left.plot(days, middle, color="#1f5f8b")
left.plot(days, in_bed, ".", color="0.3")
left.set(xlabel="day", ylabel="boys", title="In bed, and the model")
right.hist(
    posterior["fraction"].values.ravel(),
    bins=25,
    density=True,
    color="#1f5f8b",
    alpha=0.7,
)
right.plot([0, 1], [0, 2], color="0.3", linewidth=0.8)
right.set(
    xlabel="fraction of contacts left",
    yticks=[],
    title="Posterior; line: prior",
)
