"""The Nile: a Kalman filter inside a PyMC model

The level of the Nile at Aswan changed slowly, and each year's flow varied around it. In the local
level model (Durbin and Koopman 2012, Time Series Analysis by State Space Methods, 2nd ed., ch. 2)

    flow[t] ~ N(level[t], noise^2),   level[t+1] ~ N(level[t], change^2)

the Kalman filter, a loop over years, integrates the levels out. Only two standard deviations
remain to be sampled.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
from loopax.demo.gallery import log_densities, pytensor_scan
from loopax.demo.nile import PUBLISHED_VARIANCES, read_flow

# 1871 to 1970, in 1e8 cubic metres a year: table 1 of the book
years, flow = read_flow()

# %%
# A step carries the mean and variance of the level, given the flows so far, through one year.


def local_level(flow, noise, change, scan):
    """log p(flow[1:] | flow[0]), and the filtered mean and variance."""

    def year(state, y):
        mean, variance = state
        variance = variance + change**2
        error, scale = y - mean, variance + noise**2
        gain = variance / scale
        state = mean + gain * error, variance * (1 - gain)
        return state, (
            -0.5 * (np.log(2 * np.pi) + pt.log(scale) + error**2 / scale),
            state,
        )

    _, (terms, levels) = scan(year, (flow[0], noise**2), flow[1:])
    return terms.sum(), levels


def build(scan):
    with pm.Model(coords={"year": years[1:]}) as model:
        noise = pm.HalfNormal("noise", 200.0)
        change = pm.HalfNormal("change", 100.0)
        log_likelihood, (level, variance) = local_level(
            pt.constant(flow), noise, change, scan
        )
        pm.Potential("flows", log_likelihood)
        pm.Deterministic("level", level, dims="year")
        pm.Deterministic("deviation", pt.sqrt(variance), dims="year")
    return model


model = build(loopax.scan)

# %%
# The same model with `pytensor.scan`, compiled by PyMC, gives the same numbers. Times of a call:

log_densities(model, own=build(pytensor_scan))

# %%
# One line samples the model: PyMC's own NUTS calls native code. The book's maximum likelihood
# estimates lie well inside the intervals.

sampling = {
    "draws": 500,
    "tune": 500,
    "chains": 2,
    "cores": 1,
    "seed": 1,
    "progress": False,
}
trace = loopax.pymc.sample(model, sampler="pymc", quiet=True, **sampling)
posterior = trace.posterior
for name, published in zip(
    ("noise", "change"), PUBLISHED_VARIANCES, strict=True
):
    draws = posterior[name].values
    low, high = np.quantile(draws, [0.05, 0.95])
    assert low < np.sqrt(published) < high
    print(
        f"{name:8}{draws.mean():8.1f}   90 % {low:6.1f} to {high:6.1f}   book {np.sqrt(published):6.1f}"
    )

# %%

mean = posterior["level"].values.mean(axis=(0, 1))
within = (posterior["deviation"].values ** 2).mean(axis=(0, 1))
deviation = np.sqrt(within + posterior["level"].values.var(axis=(0, 1)))
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.fill_between(
    years[1:],
    mean - 1.64 * deviation,
    mean + 1.64 * deviation,
    alpha=0.2,
    linewidth=0,
)
axes.plot(years[1:], mean, color="#1f5f8b", label="filtered level")
axes.plot(years, flow, ".", color="0.3", markersize=4, label="flow")
axes.set(
    xlabel="year",
    ylabel="1e8 cubic metres",
    title="The level of the Nile, with 90 % of its posterior",
)
axes.legend(frameon=False)
axes.margins(x=0.01)
