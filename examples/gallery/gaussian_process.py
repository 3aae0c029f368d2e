"""A Gaussian process in linear time: the motorcycle data

A Gaussian process with the Matern covariance of smoothness 3/2 is the solution of a second-order
stochastic differential equation. So its marginal likelihood is a Kalman filter (Hartikainen and
Sarkka 2010, Kalman filtering and smoothing solutions to temporal Gaussian process regression
models): a loop over the data in place of a Cholesky factorization of a matrix that grows with the
data. PyMC's own `pm.gp.Marginal` gives the same numbers.

The data are the acceleration of a dummy's head after an impact (Silverman 1985, J. R. Statist.
Soc. B 47, 1); some times have two measurements.
"""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from matplotlib.figure import Figure

import loopax
from loopax.demo.gallery import log_densities, read

time, acceleration = read("motorcycle")
order = np.argsort(time, kind="stable")
time, acceleration = time[order], acceleration[order]
gaps = np.diff(
    time, prepend=time[0]
)  # the first is zero, and some others are


# %%
# One step moves the process and its slope across a gap, then updates them with a measurement.


def log_marginal_likelihood(y, gaps, length, size, noise):
    """The log-density of y (n,), at gaps (n,), the first of them zero."""
    rate = np.sqrt(3.0) / length
    start = size**2 * pt.stacklists([[1.0, 0.0], [0.0, rate**2]])

    def datum(state, row):
        mean, covariance = state
        y, gap = row
        decay = pt.exp(-rate * gap)
        move = decay * pt.stacklists(
            [[1 + rate * gap, gap], [-(rate**2) * gap, 1 - rate * gap]]
        )
        mean = move @ mean
        covariance = start + move @ (covariance - start) @ move.T
        error, scale = y - mean[0], covariance[0, 0] + noise**2
        gain = covariance[:, 0] / scale
        term = -0.5 * (np.log(2 * np.pi) + pt.log(scale) + error**2 / scale)
        return (
            mean + gain * error,
            covariance - scale * pt.outer(gain, gain),
        ), term

    _, terms = loopax.scan(datum, (pt.zeros(2), start), (y, gaps))
    return terms.sum()


def priors():
    length = pm.InverseGamma("length", 5.0, 50.0)
    size = pm.HalfNormal("size", 60.0)
    return length, size, pm.HalfNormal("noise", 30.0)


with pm.Model() as model:
    parameters = priors()
    likelihood = log_marginal_likelihood(
        pt.constant(acceleration), pt.constant(gaps), *parameters
    )
    pm.Potential("acceleration", likelihood)

with pm.Model() as dense:
    length, size, noise = priors()
    process = pm.gp.Marginal(
        cov_func=size**2 * pm.gp.cov.Matern32(1, ls=length)
    )
    process.marginal_likelihood(
        "acceleration",
        X=time[:, None],
        y=acceleration,
        sigma=noise,
        jitter=0.0,
    )

# %%
# The loop and the dense matrix give the same log-density and gradient.

log_densities(model, own=dense)

# %%

sampling = {
    "draws": 400,
    "tune": 400,
    "chains": 2,
    "cores": 1,
    "seed": 1,
    "progress": False,
}
trace = loopax.pymc.sample(model, sampler="pymc", quiet=True, **sampling)
for name in ("length", "size", "noise"):
    draws = trace.posterior[name].values
    low, high = np.quantile(draws, [0.05, 0.95])
    print(f"{name:8}{draws.mean():8.2f}   90 % {low:7.2f} to {high:7.2f}")

# %%
# The posterior of the process given all data needs no smoother. Its mean is the data plus the noise
# variance times the gradient of the log-likelihood with respect to the data. Its variance follows
# from the second derivatives in the same way.

y, gap = pt.vectors("y", "gap")
length, size, noise = pt.dscalars("length", "size", "noise")
f = loopax.jaxify(
    [y, gap, length, size, noise],
    log_marginal_likelihood(y, gap, length, size, noise),
)
at = [
    float(trace.posterior[name].mean())
    for name in ("length", "size", "noise")
]
slope = jax.grad(f)(acceleration, gaps, *at)
curvature = np.diag(jax.hessian(f)(acceleration, gaps, *at))
mean = acceleration + at[2] ** 2 * slope
deviation = np.sqrt(at[2] ** 2 + at[2] ** 4 * curvature)

r = np.sqrt(3) * np.abs(time[:, None] - time) / at[0]
K = at[1] ** 2 * (1 + r) * np.exp(-r)
A = np.linalg.solve(K + at[2] ** 2 * np.eye(len(time)), K)
np.testing.assert_allclose(mean, A.T @ acceleration, atol=1e-6 * at[1])
np.testing.assert_allclose(deviation**2, np.diag(K - K @ A), rtol=1e-5)

figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.fill_between(
    time,
    mean - 1.64 * deviation,
    mean + 1.64 * deviation,
    alpha=0.25,
    linewidth=0,
)
axes.plot(time, mean, color="#1f5f8b")
axes.plot(time, acceleration, ".", color="0.3", markersize=4)
axes.set(
    xlabel="milliseconds after the impact",
    ylabel="acceleration (g)",
    title="The process, with 90 %",
)
axes.margins(x=0.01)
