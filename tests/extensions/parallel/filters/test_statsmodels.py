"""`kalman_filter` and `kalman_smoother` against statsmodels, on its kinds of models, where it is installed.

statsmodels has the transition from a step at that step, loopax at the one that it leads to.
"""

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode

from loopax import kalman_filter, kalman_smoother

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.one_stack]
sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax")
structural = pytest.importorskip("statsmodels.tsa.statespace.structural")
factors = pytest.importorskip("statsmodels.tsa.statespace.dynamic_factor")
mlemodel = pytest.importorskip("statsmodels.tsa.statespace.mlemodel")

RNG = np.random.default_rng(3)
T = 24
Y = np.cumsum(RNG.normal(size=(T, 1)), axis=0) + 5
PANEL = np.cumsum(RNG.normal(size=(T, 3)), axis=0) * 0.3
X = RNG.normal(size=(T, 2)) + 1


class Coefficients(mlemodel.MLEModel):
    """A regression whose coefficients are random walks, with offsets in both equations."""

    def __init__(self, y):
        super().__init__(y, k_states=2)
        self["design"] = X.T[None]
        self["transition"] = self["selection"] = np.eye(2)
        self["state_cov"] = np.diag([0.1, 0.3])
        self["obs_cov", 0, 0] = 0.5
        self["state_intercept"] = np.stack([0.1 * np.arange(T), np.sin(np.arange(T))])
        self["obs_intercept"] = np.array([[2.0]])
        self.ssm.initialize_diffuse()


def structural_model(y, params, **options):
    model = structural.UnobservedComponents(y, use_exact_diffuse=True, **options)
    model.update(params)
    return model


def arma(y, order, params, **options):
    model = sarimax.SARIMAX(y, order=order, **options)
    model.update(np.array(params))
    return model


def dynamic_factor(y):
    model = factors.DynamicFactor(y, k_factors=1, factor_order=2, error_order=1)
    model.update(np.array([0.5, -0.4, 0.9, 0.3, 0.2, 0.4, 0.5, 0.2, 0.3, -0.2, 0.1]))
    return model


MODELS = {
    "local level": (Y, lambda y: structural_model(y, [1.0, 0.5], level="llevel")),
    "local level without noise": (Y, lambda y: structural_model(y, [0.0, 0.5], level="llevel")),
    "local linear trend": (Y, lambda y: structural_model(y, [1.0, 0.5, 0.1], level="lltrend")),
    "seasonal": (
        Y,
        lambda y: structural_model(y, [1.0, 0.5, 0.1, 0.2], level="lltrend", seasonal=4),
    ),
    "deterministic trend": (Y, lambda y: structural_model(y, [1.0], level="dtrend")),
    "cycle": (
        Y,
        lambda y: structural_model(
            y, [1.0, 0.3, 0.2, 0.9], level="llevel", cycle=True, stochastic_cycle=True
        ),
    ),
    "ARMA": (Y - 5, lambda y: arma(y, (2, 0, 1), [0.5, 0.2, 0.4, 1.3])),
    "ARMA with noise": (
        Y - 5,
        lambda y: arma(y, (2, 0, 1), [0.5, 0.2, 0.4, 0.7, 1.3], measurement_error=True),
    ),
    "ARIMA": (Y, lambda y: arma(y, (1, 1, 1), [0.5, 0.4, 1.3], use_exact_diffuse=True)),
    "coefficients that change": (Y, Coefficients),
    "dynamic factor": (PANEL, dynamic_factor),
}


def arguments(model):
    """The model as arguments of `kalman_filter`."""
    ssm = model.ssm
    full = {
        k: np.moveaxis(np.asarray(ssm[k]), -1, 0) if ssm[k].ndim > 1 else ssm[k]
        for k in ("obs_intercept", "state_intercept")
    }
    for k in ("design", "obs_cov", "transition", "selection", "state_cov"):
        full[k] = np.moveaxis(np.asarray(ssm[k]), -1, 0) if ssm[k].ndim > 2 else ssm[k][None]
    for k in ("obs_intercept", "state_intercept"):
        full[k] = np.atleast_2d(full[k])
    spread = full["selection"] @ full["state_cov"] @ full["selection"].swapaxes(1, 2)

    def now(x):
        return x[0] if len(x) == 1 else x

    def before(x):
        return x[0] if len(x) == 1 else np.concatenate([x[:1], x[:-1]])

    return {
        "transition": before(full["transition"]),
        "transition_covariance": before(spread),
        "observation": now(full["design"]),
        "observation_covariance": now(full["obs_cov"]),
        "transition_offset": before(full["state_intercept"]),
        "observation_offset": now(full["obs_intercept"]),
    }


def start(model):
    """Mean, covariance and diffuse states."""
    ssm = model.ssm
    mean, infinite, finite = ssm.initialization(model=ssm)
    mean, finite, infinite = np.array(mean), np.array(finite), np.array(infinite)
    flags = np.diag(infinite) > 0
    assert np.array_equal(infinite, np.diag(flags.astype(float)))
    return {
        "initial_mean": mean,
        "initial_covariance": finite,
        "diffuse": bool(flags.all()) or (flags.tolist() if flags.any() else False),
    }


def holes(y):
    """Steps without an observation, at the start too, and entries where there are several."""
    y = y.copy()
    y[[1, 7, 8]] = np.nan
    y[3:6, 0] = np.nan
    y[11, 1:] = np.nan
    return y


CLOSE = {"rtol": 1e-6, "atol": 1e-7}


def of_steps(x):
    return np.moveaxis(x, -1, 0)[:T]


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "holes"])
@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_of_statsmodels(name, missing):
    """Of the graph itself: its forms agree with it elsewhere."""
    y, build = MODELS[name]
    y = holes(y) if missing else y
    model = build(y)
    want = model.ssm.smooth()
    args = {**arguments(model), **start(model)}
    actual = kalman_filter(y, **args)._asdict()
    smooth = kalman_smoother(y, **args)._asdict()
    outs = {**actual, **{"smoothed " + k: v for k, v in smooth.items()}}
    f = pytensor.function([], list(outs.values()), mode=Mode("py", None))
    got = dict(zip(outs, f(), strict=True))
    same = {
        "log_likelihood": want.llf,
        "smoothed log_likelihood": want.llf,
        "log_likelihoods": want.llf_obs,
        "means": of_steps(want.filtered_state),
        "covariances": of_steps(want.filtered_state_cov),
        "predicted_means": of_steps(want.predicted_state),
        "predicted_covariances": of_steps(want.predicted_state_cov),
        "innovations": of_steps(want.forecasts_error),
        "innovation_covariances": of_steps(want.forecasts_error_cov),
        "smoothed means": of_steps(want.smoothed_state),
        "smoothed covariances": of_steps(want.smoothed_state_cov),
    }
    if want.nobs_diffuse:
        same["predicted_diffuse_covariances"] = of_steps(want.predicted_diffuse_state_cov)
    for key, x in same.items():
        np.testing.assert_allclose(got[key], x, **CLOSE, err_msg=key)
    np.testing.assert_allclose(got["smoothed diffuse_covariances"], 0, atol=1e-9)
