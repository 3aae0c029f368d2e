"""Airline passengers: a seasonal ARIMA model by the Kalman filter

Box and Jenkins modeled the number of airline passengers with SARIMA (0,1,1)(0,1,1) over twelve
months. The logarithms, differenced over a month and over a year, follow

    w[t] = (1 + theta B)(1 + seasonal B^12) e[t],   e[t] ~ N(0, variance),   B x[t] = x[t-1]

The exact likelihood is a Kalman filter with fourteen state components, so each step multiplies
matrices. The estimates agree with `arima(log(AirPassengers), c(0, 1, 1), c(0, 1, 1))` in R.
"""

import jax
import numpy as np
import pytensor.tensor as pt
from matplotlib.figure import Figure
from scipy.linalg import toeplitz
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import loopax
from loopax.demo.gallery import compare_times, read

passengers = read("air_passengers")
log_passengers = np.log(passengers)
w = np.diff(log_passengers[12:] - log_passengers[:-12])
ORDER = 14  # components of a moving average over thirteen months

# %%
# The state holds the effect of past shocks on the months ahead; each month its entries move up by
# one.

theta, seasonal, log_variance = pt.dscalars(
    "theta", "seasonal", "log_variance"
)
w_in = pt.vector("w")
weights = pt.zeros(ORDER)[np.array([0, 1, 12, 13])].set(
    pt.stack([pt.ones(()), theta, seasonal, theta * seasonal])
)
shock = pt.exp(log_variance) * pt.outer(weights, weights)
up = np.eye(ORDER, k=1)  # up @ state moves it by one month


# The stationary covariance is a sum over the last fourteen shocks.
start = loopax.fori_loop(
    0, ORDER, lambda k, p: up @ p @ up.T + shock, pt.zeros((ORDER, ORDER))
)


def month(state, y):
    mean, covariance = state
    error, scale = y - mean[0], covariance[0, 0]
    gain = covariance[:, 0] / scale
    mean, covariance = (
        mean + gain * error,
        covariance - pt.outer(gain, gain) * scale,
    )
    term = -0.5 * (np.log(2 * np.pi) + pt.log(scale) + error**2 / scale)
    return (up @ mean, up @ covariance @ up.T + shock), term


(mean_ahead, _), terms = loopax.scan(month, (pt.zeros(ORDER), start), w_in)
inputs = [theta, seasonal, log_variance, w_in]
in_jax = loopax.jaxify(
    inputs, {"log_likelihood": terms.sum(), "ahead": mean_ahead}
)

# %%
# Maximum likelihood, with standard errors from `jax.hessian`.


@jax.jit
def loss(p):
    return -in_jax(*p, w)["log_likelihood"]


search = jax.jit(jax.value_and_grad(loss))
optimum = minimize(
    search,
    [0.0, 0.0, -6.0],
    jac=True,
    method="BFGS",
    options={"gtol": 1e-5},
)
errors = np.sqrt(np.diag(np.linalg.inv(jax.hessian(loss)(optimum.x))))
np.testing.assert_allclose(optimum.x[:2], [-0.4018, -0.5569], atol=2e-4)
np.testing.assert_allclose(np.exp(optimum.x[2]), 0.001348, atol=2e-6)
np.testing.assert_allclose(optimum.fun, -244.70, atol=0.01)
print(
    f"theta     {optimum.x[0]:8.4f} +- {errors[0]:.4f}   R: -0.4018 +- 0.0896"
)
print(
    f"seasonal  {optimum.x[1]:8.4f} +- {errors[1]:.4f}   R: -0.5569 +- 0.0731"
)
print(f"variance  {np.exp(optimum.x[2]):8.6f}            R:  0.001348")
print(f"log-likelihood {-optimum.fun:.2f}       R:  244.70")

# %%
# The same likelihood without a filter: the values are jointly normal, and the weights give their
# covariance. SciPy's density agrees. The comparison times the value alone.


def by_scipy(theta, seasonal, log_variance, w):
    psi = np.zeros(ORDER)
    psi[[0, 1, 12, 13]] = 1.0, theta, seasonal, theta * seasonal
    covariance = np.zeros(len(w))
    covariance[:ORDER] = (
        np.exp(log_variance) * np.correlate(psi, psi, "full")[ORDER - 1 :]
    )
    return multivariate_normal.logpdf(w, cov=toeplitz(covariance))


native = loopax.jaxify(inputs, terms.sum(), backend="numba")
np.testing.assert_allclose(
    native(*optimum.x, w), by_scipy(*optimum.x, w), rtol=1e-10
)
np.testing.assert_allclose(
    -loss(optimum.x), by_scipy(*optimum.x, w), rtol=1e-10
)
compare_times(
    {
        "loopax, native": lambda: native(*optimum.x, w),
        "loopax, JAX": lambda: jax.block_until_ready(loss(optimum.x)),
        "SciPy, dense covariance": lambda: by_scipy(*optimum.x, w),
    }
)

# %%
# The final state predicts the year ahead; anything beyond has mean zero. Undoing the differences
# gives passengers, and random shocks with the same weights give their spread.

rng = np.random.default_rng(1)
AHEAD = 36
psi = np.zeros(ORDER)
psi[[0, 1, 12, 13]] = (
    1.0,
    optimum.x[0],
    optimum.x[1],
    optimum.x[0] * optimum.x[1],
)
shocks = np.exp(optimum.x[2] / 2) * rng.normal(size=(2000, AHEAD))
known = np.concatenate(
    [in_jax(*optimum.x, w)["ahead"], np.zeros(AHEAD - ORDER)]
)
ahead = known + np.stack([np.convolve(row, psi)[:AHEAD] for row in shocks])
paths = np.tile(log_passengers, (2000, 1))
for t in range(AHEAD):
    following = paths[:, -1] + paths[:, -12] - paths[:, -13] + ahead[:, t]
    paths = np.concatenate([paths, following[:, None]], axis=1)
low, middle, high = np.exp(
    np.quantile(paths[:, -AHEAD:], [0.05, 0.5, 0.95], axis=0)
)

when, later = 1949 + np.arange(144) / 12, 1961 + np.arange(AHEAD) / 12
figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(when, passengers, color="0.3", linewidth=1)
axes.fill_between(later, low, high, alpha=0.25, linewidth=0)
axes.plot(later, middle, color="#1f5f8b")
axes.set(
    xlabel="year",
    ylabel="thousands of passengers",
    title="Three years ahead, with 90 % of the paths",
)
axes.margins(x=0.01)
