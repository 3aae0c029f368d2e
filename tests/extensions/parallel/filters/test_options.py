"""Options of `kalman_filter` and `kalman_smoother`: offsets, holes, diffuse starts, singular covariances.

The answers are those of the one Gaussian that all observations have, in JAX, and so are derivatives.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, jaxify, kalman_filter, kalman_smoother
from loopax.demo.nile import PUBLISHED_VARIANCES, read_flow

FORMS = pytest.mark.parametrize("parallel", [False, True], ids=["loop", "at once"])
STARTS = {"known": False, "a diffuse state": [False, True], "diffuse": True}
T = 6
RNG = np.random.default_rng(5)
Y = RNG.normal(size=(T, 2))
HOLES = Y.copy()
HOLES[0, 1] = HOLES[2, 0] = np.nan
HOLES[4] = np.nan
THETA = np.array([0.8, 0.5, 0.3])
STEPS = np.arange(float(T))


def arguments(theta, lib):
    """A model of parameters, which change it from step to step too, in PyTensor or JAX."""
    rho, q, r = theta[0], theta[1], theta[2]

    def matrix(rows):
        return lib.stack([lib.stack([x + 0.0 * rho for x in row]) for row in rows])

    f = matrix([[1.0, 1.0], [0.0, rho]])
    steps = STEPS[:, None, None]
    return {
        "transition": f,
        "transition_covariance": matrix([[q, 0.1], [0.1, 0.2]]) * (1 + 0.1 * steps),
        "observation": matrix([[1.0, 0.0], [0.5, 1.0]]),
        "observation_covariance": matrix([[r, 0.1], [0.1, 0.4]]) * (1 + 0.2 * steps),
        "initial_mean": np.array([0.4, -0.3]),
        "initial_covariance": np.array([[0.6, 0.2], [0.2, 0.9]]),
        "transition_offset": np.stack([0.1 * STEPS, np.cos(STEPS)], 1),
        "observation_offset": np.array([0.3, -0.7]),
    }


def answers(theta, y, diffuse):
    """The log-likelihood, smoothed means and covariances, all by one Gaussian."""
    a = arguments(theta, jnp)
    flags = np.broadcast_to(diffuse, (2,))
    known = np.outer(~flags, ~flags)
    f, q = a["transition"], a["transition_covariance"]
    ahead = [jnp.eye(2)]  # of the first state
    mean = [jnp.asarray(a["initial_mean"])]
    blocks = [[a["initial_covariance"] * known]]
    for t in range(1, T):
        mean.append(f @ mean[-1] + a["transition_offset"][t])
        ahead.append(f @ ahead[-1])
        row = [f @ c for c in blocks[-1]]
        blocks.append([*row, row[-1] @ f.T + q[t]])
    full = jnp.block(
        [
            [blocks[max(s, t)][min(s, t)] if s >= t else blocks[t][s].T for t in range(T)]
            for s in range(T)
        ]
    )
    mean, shares = jnp.concatenate(mean), jnp.concatenate(ahead)[:, np.flatnonzero(flags)]
    h = jnp.kron(jnp.eye(T), a["observation"])
    r = jax.scipy.linalg.block_diag(*a["observation_covariance"])
    seen = np.flatnonzero(~np.isnan(y.ravel()))
    h, r = h[seen], r[np.ix_(seen, seen)]
    off = y.ravel()[seen] - jnp.tile(a["observation_offset"], T)[seen] - h @ mean
    s = h @ full @ h.T + r
    x = h @ shares
    density = -0.5 * (off @ jnp.linalg.solve(s, off) + jnp.linalg.slogdet(2 * jnp.pi * s)[1])
    delta, spread = jnp.zeros(0), jnp.zeros((0, 0))
    if flags.any():
        information = x.T @ jnp.linalg.solve(s, x)
        eta = x.T @ jnp.linalg.solve(s, off)
        spread = jnp.linalg.inv(information)
        delta = spread @ eta
        density += 0.5 * (eta @ delta - jnp.linalg.slogdet(information)[1])
    gain = full @ h.T @ jnp.linalg.inv(s)
    shares = shares - gain @ x
    means = mean + gain @ off + shares @ delta
    covariance = full - gain @ h @ full + shares @ spread @ shares.T
    covariances = jnp.stack([covariance[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] for t in range(T)])
    return density, means.reshape(T, 2), covariances


def program(build, diffuse, parallel, y=None, **options):
    theta = pt.dvector("theta")
    args = {
        k: v for k, v in arguments(theta, pt).items() if not (diffuse is True and "initial" in k)
    }
    made = build(HOLES if y is None else y, **args, diffuse=diffuse, parallel=parallel)
    return theta, made


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("start", STARTS)
def test_a_smoother(start, parallel):
    theta, made = program(kalman_smoother, STARTS[start], parallel)
    f = jaxify([theta], [made.log_likelihood, made.means, made.covariances])
    for got, want in zip(f(THETA), answers(THETA, HOLES, STARTS[start]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("start", ["known", "a diffuse state"])
def test_derivatives_of_the_log_likelihood(start, parallel):
    """Of first and second order, and in a batch."""
    theta, made = program(kalman_filter, STARTS[start], parallel)
    f = jaxify([theta], made.log_likelihood)
    every = jax.jit(jax.vmap(lambda t: (f(t), jax.grad(f)(t), jax.hessian(f)(t))))
    thetas = np.stack([THETA, THETA * 1.1])
    for k, t in enumerate(thetas):

        def density(t):
            return answers(t, HOLES, STARTS[start])[0]

        wanted = density(t), jax.grad(density)(t), jax.hessian(density)(t)
        for got, want in zip(every(thetas), wanted, strict=True):
            np.testing.assert_allclose(got[k], want, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_a_gradient_at_once_beside_a_loop():
    """The cheaper one of these: the two forms have the same gradient."""
    slopes = []
    for parallel in (False, True):
        theta, made = program(kalman_filter, [False, True], parallel)
        slopes.append(jax.grad(jaxify([theta], made.log_likelihood))(THETA))
    np.testing.assert_allclose(*slopes, rtol=1e-8)


@pytest.mark.slow
def test_native_code():
    """The log-likelihood with its gradient, and what a filter says of each step."""
    theta, made = program(kalman_filter, [False, True], False)
    outs = [made.log_likelihood, pt.grad(made.log_likelihood, theta), made.means]
    wanted = jaxify([theta], outs, loops="xla")(THETA)
    for options in ({"backend": "numba"}, {"loops": "native"}):
        for got, want in zip(jaxify([theta], outs, **options)(THETA), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@FORMS
def test_what_a_filter_says_of_each_step(parallel):
    """Densities that add up, innovations that are nan where there are none, and unbounded variances."""
    theta, made = program(kalman_filter, True, parallel)
    got = dict(zip(made._fields, jaxify([theta], list(made))(THETA), strict=True))
    np.testing.assert_allclose(got["log_likelihoods"].sum(), got["log_likelihood"], rtol=1e-10)
    a = arguments(THETA, np)
    predicted = got["predicted_means"] @ a["observation"].T + a["observation_offset"]
    np.testing.assert_allclose(got["innovations"], HOLES - predicted, rtol=1e-12)
    wide = np.einsum(
        "ij,tjk,lk->til", a["observation"], got["predicted_covariances"], a["observation"]
    )
    np.testing.assert_allclose(
        got["innovation_covariances"], wide + a["observation_covariance"], rtol=1e-10
    )
    np.testing.assert_allclose(got["predicted_diffuse_covariances"][0], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(got["diffuse_covariances"][0], [[0, 0], [0, 1]], atol=1e-9)
    np.testing.assert_allclose(got["predicted_diffuse_covariances"][2:], 0, atol=1e-9)


def test_the_nile():
    """Its log-likelihood is statsmodels', which counts log(2 pi) / 2 for the diffuse step, too: -632.5456
    without, as Durbin and Koopman have it."""
    y, (h, q), one = read_flow()[1][:, None], PUBLISHED_VARIANCES, np.ones((1, 1))
    made = kalman_filter(y, one, q * one, one, h * one, diffuse=True)
    np.testing.assert_allclose(jaxify([], made.log_likelihood)(), -633.464564, rtol=1e-8)


@pytest.mark.slow
def test_an_observation_without_noise():
    """A covariance of 0 is right where what is observed is not known before."""
    one = np.ones((1, 1))
    y = np.cumsum(Y[:, :1], axis=0)
    wanted = (
        -0.5 * (np.diff(y[:, 0]) ** 2 / 2 + np.log(2 * np.pi * 2)).sum() - np.log(2 * np.pi) / 2
    )
    for parallel in (False, True):
        made = kalman_filter(y, one, 2 * one, one, 0 * one, diffuse=True, parallel=parallel)
        density, means = jaxify([], [made.log_likelihood, made.means])()
        np.testing.assert_allclose(density, wanted, rtol=1e-10)
        np.testing.assert_allclose(means, y, rtol=1e-10)


@pytest.mark.sampled(1)
@FORMS
def test_an_innovation_that_cannot_vary_has_no_density(parallel):
    """Two observations that are one: a pivot of 0, whatever rounding makes of it."""
    h = np.array([[0.1, 0.3], [0.1, 0.3]])
    made = kalman_filter(
        Y, np.eye(2), np.eye(2), h, np.zeros((2, 2)), np.zeros(2), np.eye(2), parallel=parallel
    )
    assert all(np.isnan(x).all() for x in jaxify([], [made.log_likelihood, made.means])())


@pytest.mark.slow
def test_float32():
    made = kalman_filter(
        Y.astype("float32"), *(np.eye(2, dtype="float32") for _ in range(4)), diffuse=True
    )
    assert {v.type.dtype for v in made} == {"float32"}
    double = kalman_filter(Y, *(np.eye(2) for _ in range(4)), diffuse=True)
    one, two = (jaxify([], m.log_likelihood)() for m in (made, double))
    np.testing.assert_allclose(one, two, rtol=1e-4)


def test_integers_beside_floats():
    one = np.ones((1, 1), int)
    made = kalman_filter(Y[:1, :1].astype("float32"), one, one, one, one, np.zeros(1, int), one)
    assert made.log_likelihood.type.dtype == "float64"
    np.testing.assert_allclose(
        jaxify([], made.log_likelihood)(),
        -0.5 * (float(np.float32(Y[0, 0])) ** 2 / 2 + np.log(4 * np.pi)),
        rtol=1e-6,
    )


ONE = np.eye(2)
REFUSED = {
    "takes transition_offset of shape .6, 2., for": {"transition_offset": np.zeros((5, 2))},
    "takes observation of shape .2, 2.": {"observation": np.ones((3, 2))},
    "the eigenvalue -1": {"observation_covariance": np.diag([1.0, -1.0])},
    "this matrix is not symmetric": {"transition_covariance": np.array([[1.0, 0.5], [0.0, 1.0]])},
    "one flag of diffuse= for each of the 2 states": {"diffuse": [True]},
    "it is part of the model|It is part of the model": {"diffuse": 1e6},
    "Leave them out only with diffuse=True": {"initial_mean": None},
    "initial_mean as real numbers of rank 1": {"initial_mean": np.zeros((2, 1))},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_model_is_refused(message):
    model = {
        "transition": ONE,
        "transition_covariance": ONE,
        "observation": ONE,
        "observation_covariance": ONE,
        "initial_mean": np.zeros(2),
        "initial_covariance": ONE,
    }
    with pytest.raises(LoopTypeError, match=message):
        kalman_filter(Y, **{**model, **REFUSED[message]})
