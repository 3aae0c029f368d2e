"""The local level model of the Nile, written in PyTensor, and its estimation, written in JAX.

The model (Durbin & Koopman 2012, Time Series Analysis by State Space Methods, 2nd ed., sec. 2.1):

    flow[t]    = level[t] + observation noise     noise  ~ N(0, observation variance)
    level[t+1] = level[t] + change of level       change ~ N(0, level variance)

Flows and levels are in 1e8 cubic metres a year, variances in that unit squared. The start is
diffuse (sec. 2.9): before the first year nothing is known of the level, so the first flow becomes
the first filtered level, with the observation variance as its variance, and drops out of the
likelihood, which is log p(flow[1:] | flow[0]). The book's diffuse log-likelihood differs from it
by a constant at most, so it has the same maximum.

The two variances travel as their logarithms, so that every real vector is a legal argument.
"""

from collections.abc import Callable
from importlib.resources import files
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from scipy.optimize import minimize

# Observation variance and level variance as printed in the book, sec. 2.2.
PUBLISHED_VARIANCES = (15099.0, 1469.1)


class LocalLevel(NamedTuple):
    """The PyTensor variables of the model; n is the number of years."""

    log_variances: pt.TensorVariable  # (2,) logarithms of observation and level variance
    flow: pt.TensorVariable  # (n,) 1e8 m3
    level: pt.TensorVariable  # (n,) filtered level, mean of level[t] given flow[:t+1], 1e8 m3
    variance: pt.TensorVariable  # (n,) its variance, (1e8 m3)**2
    log_likelihood: pt.TensorVariable  # () sum of the n - 1 prediction errors' log densities

    @property
    def inputs(self) -> list[pt.TensorVariable]:
        return [self.log_variances, self.flow]


class Estimate(NamedTuple):
    """The maximum of the likelihood, and its curvature there."""

    variances: np.ndarray  # (2,) observation and level variance, (1e8 m3)**2
    standard_errors: np.ndarray  # (2,) of the variances, same unit
    log_likelihood: float
    evaluations: int  # of value and gradient


def read_flow() -> tuple[np.ndarray, np.ndarray]:
    """The years (n,) and the annual flows (n,) of the Nile at Aswan, 1e8 cubic metres."""
    with files("loopax.demo").joinpath("nile.csv").open(encoding="utf-8") as file:
        years, flow = np.loadtxt(file, delimiter=",", skiprows=2, unpack=True)
    return years.astype(int), flow


def local_level() -> LocalLevel:
    """The Kalman filter of the local level model as one `pytensor.scan` (the book's eq. 2.15).

    One step, from the filtered (level, variance) of last year to this year's:

        P = variance + level variance          of the prediction, whose mean is last year's level
        F = P + observation variance           of the prediction error v = flow - level
        level <- level + v P / F               variance <- observation variance P / F

    and the density of v, N(0, F), is this year's term of the likelihood (sec. 2.10.1).
    """
    log_variances = pt.tensor("log_variances", dtype="float64", shape=(2,))
    flow = pt.tensor("flow", dtype="float64", shape=(None,))
    observation_variance, level_variance = pt.exp(log_variances[0]), pt.exp(log_variances[1])

    def step(
        flow_t: pt.TensorVariable,
        level: pt.TensorVariable,
        variance: pt.TensorVariable,
        observation_variance: pt.TensorVariable,
        level_variance: pt.TensorVariable,
    ) -> tuple[pt.TensorVariable, ...]:
        predicted = variance + level_variance
        error = flow_t - level
        error_variance = predicted + observation_variance
        gain = predicted / error_variance
        log_density = -0.5 * (LOG_2PI + pt.log(error_variance) + error**2 / error_variance)
        return level + gain * error, observation_variance * gain, log_density

    level, variance, log_densities = pytensor.scan(
        step,
        sequences=flow[1:],
        outputs_info=[flow[0], observation_variance, None],
        non_sequences=[observation_variance, level_variance],
        return_updates=False,
    )
    return LocalLevel(
        log_variances,
        flow,
        pt.concatenate([flow[:1], level]),
        pt.concatenate([observation_variance[None], variance]),
        log_densities.sum(),
    )


# A NumPy scalar: a Python float would become a float32 constant where floatX is float32.
LOG_2PI = np.log(2 * np.pi)


def maximise(log_likelihood: Callable[..., jax.Array], flow: np.ndarray) -> Estimate:
    """Maximum likelihood by SciPy's trust-region Newton method, on the log variances.

    log_likelihood: ((2,) log variances, (n,) flow) -> (), any JAX callable; flow: (n,) array.

    With H the Hessian of the log-likelihood at the maximum, in log variances z, -inv(H) estimates
    the covariance of z, and by the delta method s.e.(exp z) = exp(z) s.e.(z).
    """

    def loss(log_variances: jax.Array) -> jax.Array:
        return -log_likelihood(log_variances, flow)

    value_and_gradient = jax.jit(jax.value_and_grad(loss))
    hessian = jax.jit(jax.hessian(loss))
    optimum = minimize(
        value_and_gradient,
        start(flow),
        jac=True,
        hess=hessian,
        method="trust-exact",
        # Near 632 the likelihood is known to about 1e-13, so that smaller steps show no progress.
        options={"gtol": 1e-6},
    )
    if not optimum.success:
        raise ArithmeticError(f"the search for the likelihood's maximum failed: {optimum.message}")
    covariance = np.linalg.inv(hessian(optimum.x))
    variances = np.exp(optimum.x)
    standard_errors = variances * np.sqrt(np.diag(covariance))
    return Estimate(variances, standard_errors, -float(optimum.fun), optimum.nfev)


def start(flow: np.ndarray) -> np.ndarray:
    """The starting point of the search, (2,) log variances: half of the flow's variance each."""
    return np.log(np.full(2, flow.var() / 2))


def grid(estimate: Estimate, shape: tuple[int, int] = (61, 61)) -> tuple[np.ndarray, np.ndarray]:
    """Variances around the estimate: (m,) of the observation, (k,) of the level, (1e8 m3)**2.

    Geometric, and wide enough for the 99 % region of the Nile.
    """
    observation, level = estimate.variances
    return (
        np.geomspace(observation / 2.4, observation * 2.1, shape[0]),
        np.geomspace(level / 24, level * 16, shape[1]),
    )


def over_grid(
    function: Callable[..., jax.Array],
    flow: np.ndarray,
    observation_variances: np.ndarray,
    level_variances: np.ndarray,
) -> jax.Array:
    """`function(log variances, flow)` at every point of a grid (m,) x (k,): (m, k, ...)."""
    points = np.log(np.stack(np.meshgrid(observation_variances, level_variances), axis=-1))
    rows = jax.vmap(jax.vmap(function, in_axes=(0, None)), in_axes=(0, None))
    # meshgrid puts its first argument along columns, as contour plots want it.
    return jnp.swapaxes(jax.jit(rows)(points, flow), 0, 1)


def largest_relative_difference(a: ArrayLike, b: ArrayLike) -> float:
    """max |a - b| / max |b| of each vector (..., 2), then the largest of all."""
    a, b = np.asarray(a), np.asarray(b)
    return float(np.max(np.abs(a - b).max(axis=-1) / np.abs(b).max(axis=-1)))
