"""Time series: autoregressions by slices, by scan, by distribution, vectors of them, volatility."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt


def returns(seed, n):
    """A series of length n with some persistence."""
    noise = np.random.default_rng(seed).normal(size=n)
    return np.convolve(noise, [1.0, 0.6, 0.3])[:n]


def ar2_by_slices():
    """AR(2): the mean of each value from slices of the series, a constant."""
    y = returns(71, 1000)
    with pm.Model() as model:
        rho = pm.Normal("rho", 0.0, 0.5, shape=2)
        level, scale = pm.Normal("level", 0.0, 1.0), pm.HalfNormal("scale", 1.0)
        mu = level + rho[0] * y[1:-1] + rho[1] * y[:-2]
        pm.Normal("y", mu, scale, observed=y[2:])
    return model


def latent_ar2_by_slices():
    """AR(2) of a latent series with measurement error: slices of a parameter."""
    y = returns(72, 300)
    with pm.Model() as model:
        rho = pm.Normal("rho", 0.0, 0.5, shape=2)
        scale, noise = pm.HalfNormal("scale", 1.0), pm.HalfNormal("noise", 1.0)
        x = pm.Normal("x", 0.0, 3.0, shape=300)
        drift = x[2:] - rho[0] * x[1:-1] - rho[1] * x[:-2]
        pm.Potential("transition", pt.sum(pm.logp(pm.Normal.dist(0.0, scale), drift)))
        pm.Normal("y", x, noise, observed=y)
    return model


def ar_by_distribution():
    """AR(3) with `pm.AR`, whose log-density PyMC derives."""
    with pm.Model() as model:
        rho = pm.Normal("rho", 0.0, 0.5, shape=4)
        start = pm.Normal.dist(0.0, 10.0, shape=3)
        scale = pm.HalfNormal("scale", 1.0)
        pm.AR("y", rho, scale, constant=True, init_dist=start, observed=returns(73, 400))
    return model


def arma_by_scan():
    """ARMA(1, 1): errors that follow from the errors before, by `pytensor.scan`."""
    y = returns(74, 300)
    with pm.Model() as model:
        level, scale = pm.Normal("level", 0.0, 1.0), pm.HalfNormal("scale", 1.0)
        rho, theta = pm.Normal("rho", 0.0, 0.5), pm.Normal("theta", 0.0, 0.5)
        errors = pytensor.scan(
            lambda now, before, error, level, rho, theta: (
                now - level - rho * before - theta * error
            ),
            sequences=[pt.as_tensor(y[1:]), pt.as_tensor(y[:-1])],
            outputs_info=[y[0] - level],
            non_sequences=[level, rho, theta],
            return_updates=False,
        )
        pm.Potential("y", pt.sum(pm.logp(pm.Normal.dist(0.0, scale), errors)))
    return model


def garch():
    """GARCH(1, 1) by `pytensor.scan`, its coefficients a simplex."""
    y = returns(75, 500)
    with pm.Model() as model:
        omega = pm.HalfNormal("omega", 1.0)
        shares = pm.Dirichlet("shares", np.ones(3))
        variance = pytensor.scan(
            lambda y, v, omega, shares: omega + shares[0] * y**2 + shares[1] * v,
            sequences=[pt.as_tensor(y[:-1])],
            outputs_info=[omega],
            non_sequences=[omega, shares],
            return_updates=False,
        )
        pm.Normal("y", 0.0, pt.sqrt(variance), observed=y[1:])
    return model


def stochastic_volatility():
    """Volatility whose logarithm walks at random, Student's t returns."""
    y = returns(76, 400)
    with pm.Model() as model:
        step = pm.Exponential("step", 10.0)
        nu = pm.Exponential("nu", 0.1)
        walk = pm.GaussianRandomWalk(
            "walk", sigma=step, init_dist=pm.Normal.dist(0.0, 1.0), shape=400
        )
        pm.StudentT("y", nu=nu, mu=0.0, sigma=pt.exp(walk), observed=y)
    return model


def vector_autoregression():
    """VAR(2) of three series, coefficients shrunk by lag, errors under an LKJ prior."""
    y = np.column_stack([returns(seed, 200) for seed in (77, 78, 79)])
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0.0, 1.0, shape=3)
        shrink = pm.HalfNormal("shrink", 0.5)
        lags = pm.Normal("lags", 0.0, shrink / np.array([1.0, 2.0])[:, None, None], shape=(2, 3, 3))
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        mu = intercept + pt.dot(y[1:-1], lags[0].T) + pt.dot(y[:-2], lags[1].T)
        pm.MvNormal("y", mu, chol=chol, observed=y[2:])
    return model


MODELS = (
    ar2_by_slices,
    latent_ar2_by_slices,
    ar_by_distribution,
    arma_by_scan,
    garch,
    stochastic_volatility,
    vector_autoregression,
)
