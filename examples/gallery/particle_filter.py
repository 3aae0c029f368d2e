"""A particle filter: draws and resampling inside a loop

A cloud of particles follows the level of the Nile. Each year every particle moves by a random draw
and is weighted by the year's flow; then the particles are resampled by their weights. So the loop's
carry holds a random generator and an array, and each step searches the cumulative weights. The mean
of the weights estimates the likelihood. For this model the Kalman filter gives the exact value; with
another density, the same step filters models without an exact solution.
"""

import jax
import numpy as np
import pytensor
from matplotlib.figure import Figure

import loopax
from examples import particle_filter
from loopax.demo.gallery import compare_times
from loopax.demo.nile import PUBLISHED_VARIANCES, local_level, read_flow

# 1871 to 1970: Durbin and Koopman (2012), table 1
years, flow = read_flow()

# %%
# One graph, two backends. Native code draws from a NumPy generator, as PyTensor does, and returns
# the same numbers for the same seed.

inputs, outputs = particle_filter.graph(particles=100)
native = loopax.jaxify(inputs, outputs, backend="numba")
by_pytensor = pytensor.function(inputs, list(outputs.values()))

mine = native(np.random.default_rng(1), flow, *PUBLISHED_VARIANCES)
theirs = by_pytensor(np.random.default_rng(1), flow, *PUBLISHED_VARIANCES)
np.testing.assert_allclose(mine["log_likelihood"], theirs[0], rtol=1e-8)
np.testing.assert_allclose(mine["level"], theirs[1], rtol=1e-8)
estimates = float(mine["log_likelihood"]), float(theirs[0])
print(
    "log-likelihood by 100 particles: {:.3f}, with PyTensor {:.3f}".format(
        *estimates
    )
)

# %%
# In JAX a generator is a key, and 500 filters are one `vmap`. Their mean likelihood equals the
# Kalman filter's within its standard error.

in_jax = loopax.jaxify(inputs, outputs)
filters = jax.jit(jax.vmap(in_jax, in_axes=(0, None, None, None)))
keys = jax.random.split(jax.random.key(1), 500)
filtered = jax.tree.map(
    np.asarray, filters(keys, flow, *PUBLISHED_VARIANCES)
)

model = local_level()  # of the demo: a Kalman filter, by pytensor.scan
# There the first year starts the level, as it does here.
kalman = loopax.jaxify(model.inputs, [model.log_likelihood, model.level])
exact, level = kalman(np.log(PUBLISHED_VARIANCES), flow)
ratio = np.exp(filtered["log_likelihood"] - exact)
error = ratio.std() / np.sqrt(len(ratio))
assert abs(ratio.mean() - 1) < 4 * error
print(
    f"mean likelihood of 500 filters, the exact one being 1: {ratio.mean():.3f} +- {error:.3f}"
)

# %%

rng = np.random.default_rng(2)
compare_times(
    {
        "loopax, native": lambda: native(rng, flow, *PUBLISHED_VARIANCES),
        "PyTensor, default mode": lambda: by_pytensor(
            rng, flow, *PUBLISHED_VARIANCES
        ),
    }
)
compare_times(
    {
        "loopax, JAX, 500 filters": lambda: jax.block_until_ready(
            filters(keys, flow, *PUBLISHED_VARIANCES)
        ),
        "PyTensor, default mode, the same": lambda: [
            by_pytensor(rng, flow, *PUBLISHED_VARIANCES) for _ in range(500)
        ],
    }
)

# %%

low, high = np.quantile(filtered["level"], [0.05, 0.95], axis=0)
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.fill_between(
    years[1:],
    low,
    high,
    color="#d1495b",
    alpha=0.3,
    linewidth=0,
    label="500 filters, 90 %",
)
axes.plot(years, level, color="#1f5f8b", linewidth=1, label="Kalman filter")
axes.plot(years, flow, ".", color="0.3", markersize=4, label="flow")
axes.set(
    xlabel="year",
    ylabel="1e8 cubic metres",
    title="The level, by 100 particles and exactly",
)
axes.legend(frameon=False)
axes.margins(x=0.01)
