"""Covariance matrices: LKJ, Wishart, regressions seemingly unrelated, low rank plus diagonal."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def lkj_covariance():
    """Multivariate normal of five outcomes with an LKJ prior."""
    rng = np.random.default_rng(21)
    y = rng.normal(size=(150, 5)) @ rng.normal(size=(5, 5))
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.0, 2.0, shape=5)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=5, eta=2.0, sd_dist=pm.HalfNormal.dist(2.0))
        pm.MvNormal("y", mean, chol=chol, observed=y)
    return model


def wishart_scatter():
    """A scatter matrix that is Wishart, its scale by an LKJ correlation and standard deviations."""
    rng = np.random.default_rng(22)
    x = rng.normal(size=(60, 4))
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0, shape=4)
        corr = pm.LKJCorr("corr", n=4, eta=2.0)
        pm.Wishart("scatter", 60, sd[:, None] * corr * sd[None, :], observed=x.T @ x)
    return model


def unrelated_regressions():
    """Three regressions whose errors are correlated, Student's t."""
    rng = np.random.default_rng(23)
    x = rng.normal(size=(200, 4))
    y = x @ rng.normal(size=(4, 3)) + rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 2.0, shape=(4, 3))
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=1.0, sd_dist=pm.Exponential.dist(1.0))
        nu = pm.Gamma("nu", 2.0, 0.1)
        pm.MvStudentT("y", nu=nu, mu=pt.dot(x, slopes), chol=chol, observed=y)
    return model


def factor_analysis():
    """Ten outcomes with a covariance of rank two plus a diagonal, its Cholesky factor in the model."""
    rng = np.random.default_rng(24)
    y = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 10)) + 0.5 * rng.normal(size=(120, 10))
    rows, columns = np.tril_indices(10, 0, 2)
    with pm.Model() as model:
        free = pm.Normal("free", 0.0, 1.0, shape=len(rows))
        loadings = pt.set_subtensor(pt.zeros((10, 2))[rows, columns], free)
        noise = pm.HalfNormal("noise", 1.0, shape=10)
        pm.MvNormal("y", np.zeros(10), cov=loadings @ loadings.T + pt.diag(noise**2), observed=y)
    return model


MODELS = (lkj_covariance, wishart_scatter, unrelated_regressions, factor_analysis)
