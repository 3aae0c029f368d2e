"""Do earthquakes come in waves? A PyMC run that survives a stop

A job on a cluster has a time limit, and a laptop's battery runs out. With `checkpoint="folder"` a
run stores its draws and the state of its sampler. Repeat the call, and the run resumes: its draws
equal, to the last bit, the draws of a run without a stop.

The model is a state space model of counts (Durbin and Koopman 2012, Time Series Analysis by State
Space Methods, 2nd ed., ch. 9). The logarithm of a year's rate follows the year before:

    h[t+1] = level + phi (h[t] - level) + sigma eta[t],   count[t] ~ Poisson(exp(h[t]))
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
import loopax.pymc
from loopax.demo.gallery import compare_times, read

years, counts = read("earthquakes")

with pm.Model(coords={"year": years.astype(int)}) as model:
    level = pm.Normal("level", np.log(20.0), 0.5)
    phi = pm.Beta("phi", 8.0, 2.0)
    sigma = pm.HalfNormal("sigma", 0.2)
    innovations = pm.Normal("innovations", dims="year")

    def year(h, eta):
        h = level + phi * (h - level) + sigma * eta
        return h, h

    _, h = loopax.scan(year, level, innovations)
    rate = pm.Deterministic("rate", pt.exp(h), dims="year")
    pm.Poisson("count", rate, observed=counts.astype(int), dims="year")

# %%
# One call, with and without a folder. The sampler is PyMC's own, in one process; all samplers take
# `checkpoint`, and [some resume at a coarser point](../pymc.md#resume-a-run-that-was-stopped).

run = {"draws": 1000, "tune": 1000, "chains": 4}


def sample(**options):
    return loopax.pymc.sample(
        model,
        sampler="pymc",
        cores=1,
        seed=1,
        target_accept=0.9,
        progress=False,
        quiet=True,
        **{**run, **options},
    )


# %%
# Here a callback acts as the time limit: it interrupts the third chain halfway through its draws, as
# Ctrl-C would. After `kill -9` or a power cut, the run resumes from the folder in the same way.

CHAIN, DRAW = 2, run["draws"] // 2


def time_limit(trace, draw):
    if draw.chain == CHAIN and draw.draw_idx == run["tune"] + DRAW:
        raise KeyboardInterrupt


folder = TemporaryDirectory()
checkpoint = Path(folder.name, "earthquakes")
began = time.perf_counter()
try:
    sample(checkpoint=checkpoint, callback=time_limit)
except KeyboardInterrupt:
    print(f"stopped after {time.perf_counter() - began:5.1f} s", end="")
files = list(checkpoint.iterdir())
size = sum(file.stat().st_size for file in files)
print(f", {len(files)} files, {size / 1e6:.1f} MB")

# %%
# The same call resumes the run. Two chains are read, the third continues where it stopped, and the
# fourth is drawn. A run without a stop or a checkpoint gives the same numbers.

began = time.perf_counter()
trace = sample(checkpoint=checkpoint)
print(f"resumed in    {time.perf_counter() - began:5.1f} s")

began = time.perf_counter()
whole = sample()
print(f"without stop  {time.perf_counter() - began:5.1f} s")
for name, draws in whole.posterior.data_vars.items():
    assert np.array_equal(trace.posterior[name], draws), name
print("equal to the last bit")

for name in ("level", "phi", "sigma"):
    draws = trace.posterior[name].values
    low, high = np.quantile(draws, [0.05, 0.95])
    print(f"{name:6}{draws.mean():7.3f}   90 % {low:6.3f} to {high:6.3f}")

# %%
# Compare the time of a whole run, compilation included, with and without a checkpoint.

runs = iter(range(1000))
compare_times(
    {
        "with a checkpoint": lambda: sample(
            chains=1, checkpoint=Path(folder.name, str(next(runs)))
        ),
        "without": lambda: sample(chains=1),
    }
)
folder.cleanup()

# %%

figure = Figure(figsize=(7, 5), layout="constrained")
above, below = figure.subplots(2, 1, height_ratios=(1, 1.4))
path = trace.posterior["phi"].values[CHAIN]
number = np.arange(len(path))
above.plot(number[: DRAW + 1], path[: DRAW + 1], color="#0072b2")
above.plot(number[DRAW:], path[DRAW:], color="#e69f00")
above.axvline(DRAW, color="0.3", linestyle="--", linewidth=1)
above.set(
    title="The third chain: blue before the stop, orange after it",
    xlabel="draw",
    ylabel="phi",
)
low, middle, high = np.quantile(
    trace.posterior["rate"].values, [0.05, 0.5, 0.95], axis=(0, 1)
)
below.plot(years, counts, ".", color="0.3", label="counted")
below.plot(years, middle, color="#0072b2", label="rate: median")
below.fill_between(
    years,
    low,
    high,
    color="#0072b2",
    alpha=0.2,
    linewidth=0,
    label="90 % of the posterior",
)
below.set(
    title="Major earthquakes, and their rate",
    xlabel="year",
    ylabel="earthquakes a year",
)
figure.legend(frameon=False, loc="outside lower center", ncols=3)
for axes in (above, below):
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
