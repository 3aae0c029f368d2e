"""Gaussian processes: marginal, latent, spectral (HSGP), Kronecker, coregionalised."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def marginal_process():
    """A Matern process with noise, marginalised: the Cholesky factor of 80 points."""
    rng = np.random.default_rng(41)
    x = np.sort(rng.uniform(0.0, 10.0, 80))[:, None]
    y = np.sin(x[:, 0]) + rng.normal(0.0, 0.2, 80)
    with pm.Model() as model:
        length, height = pm.InverseGamma("length", 3.0, 3.0), pm.HalfNormal("height", 1.0)
        gp = pm.gp.Marginal(cov_func=height**2 * pm.gp.cov.Matern52(1, ls=length))
        gp.marginal_likelihood("y", X=x, y=y, sigma=pm.HalfNormal("noise", 0.5))
    return model


def latent_process():
    """Counts along a latent process of 60 points, periodic plus smooth."""
    rng = np.random.default_rng(42)
    x = np.linspace(0.0, 6.0, 60)[:, None]
    y = rng.poisson(np.exp(1.0 + np.sin(2 * np.pi * x[:, 0])))
    with pm.Model() as model:
        length, height = pm.Gamma("length", 4.0, 2.0), pm.HalfNormal("height", 1.0, shape=2)
        smooth = height[0] ** 2 * pm.gp.cov.ExpQuad(1, ls=length)
        season = height[1] ** 2 * pm.gp.cov.Periodic(1, period=1.0, ls=0.8)
        gp = pm.gp.Latent(cov_func=smooth + season)
        f = gp.prior("f", X=x)
        pm.Poisson("y", pt.exp(f), observed=y)
    return model


def spectral_process():
    """A Hilbert space approximation (HSGP) of a process of 2000 points by 200 basis functions."""
    rng = np.random.default_rng(43)
    x = np.sort(rng.uniform(-1.0, 1.0, 2000))[:, None]
    y = np.sin(5 * x[:, 0]) + rng.normal(0.0, 0.3, 2000)
    with pm.Model() as model:
        length, height = pm.InverseGamma("length", 3.0, 1.0), pm.HalfNormal("height", 1.0)
        gp = pm.gp.HSGP(m=[200], c=1.5, cov_func=height**2 * pm.gp.cov.Matern52(1, ls=length))
        f = gp.prior("f", X=x)
        pm.Normal("y", f, pm.HalfNormal("noise", 0.5), observed=y)
    return model


def kronecker_process():
    """A process on a grid of 12 by 15 points with noise, through the factors' eigenvectors."""
    rng = np.random.default_rng(44)
    grids = np.linspace(0.0, 1.0, 12)[:, None], np.linspace(0.0, 2.0, 15)[:, None]
    y = rng.normal(size=180)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 3.0, 1.0, shape=2)
        height = pm.HalfNormal("height", 1.0)
        across = pm.gp.cov.Matern32(1, ls=length[0])
        along = height**2 * pm.gp.cov.Matern32(1, ls=length[1])
        gp = pm.gp.MarginalKron(cov_funcs=[across, along])
        gp.marginal_likelihood("y", Xs=grids, y=y, sigma=pm.HalfNormal("noise", 0.5))
    return model


def coregionalised_process():
    """Three outputs at 25 points each: a kernel of inputs times a coregionalisation matrix."""
    rng = np.random.default_rng(45)
    x = np.column_stack([np.tile(np.linspace(0.0, 5.0, 25), 3), np.repeat([0, 1, 2], 25)])
    y = np.sin(x[:, 0] + x[:, 1]) + rng.normal(0.0, 0.2, 75)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 3.0, 3.0)
        W, kappa = pm.Normal("W", 0.0, 1.0, shape=(3, 2)), pm.HalfNormal("kappa", 1.0, shape=3)
        inputs = pm.gp.cov.ExpQuad(2, ls=length, active_dims=[0])
        outputs = pm.gp.cov.Coregion(2, active_dims=[1], W=W, kappa=kappa)
        gp = pm.gp.Marginal(cov_func=inputs * outputs)
        gp.marginal_likelihood("y", X=x, y=y, sigma=pm.HalfNormal("noise", 0.5))
    return model


MODELS = (
    marginal_process,
    latent_process,
    spectral_process,
    kronecker_process,
    coregionalised_process,
)
