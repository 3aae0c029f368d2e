"""`kalman_filter` and `hmm_forward`, in both forms, against densities of all observations at once."""

import itertools

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from loopax import LoopTypeError, hmm_forward, jaxify, kalman_filter

FORMS = pytest.mark.parametrize("parallel", [False, True], ids=["loop", "at once"])
RNG = np.random.default_rng(0)
T, D, P = 5, 2, 1

SPD = np.array([[0.5, 0.1], [0.1, 0.4]])
MODEL = {
    "transition": RNG.normal(size=(D, D)) * 0.6,
    "transition_covariance": SPD,
    "observation": RNG.normal(size=(P, D)),
    "observation_covariance": np.eye(P) * 0.3,
    "initial_mean": np.array([1.0, -1.0]),
    "initial_covariance": SPD + 1,
}
Y = RNG.normal(size=(T, P))


def changing(model):
    """The same model, with matrices for each step, which differ."""
    scale = np.linspace(0.5, 1.5, T)[:, None, None]
    names = list(model)[:4]
    return {k: scale * x if k in names else x for k, x in model.items()}


def joint(model):
    """Mean and covariance of all states, and of all observations given them."""
    of = {k: np.broadcast_to(x, (T, *x.shape[-2:])) for k, x in model.items() if x.ndim > 1}
    means, cov = np.zeros((T, D)), np.zeros((T, D, T, D))
    means[0], cov[0, :, 0] = model["initial_mean"], model["initial_covariance"]
    for t in range(1, T):
        f = of["transition"][t]
        means[t] = f @ means[t - 1]
        cov[t, :, :t] = np.einsum("ij,jsk->isk", f, cov[t - 1, :, :t])
        cov[:t, :, t] = cov[t, :, :t].transpose(1, 2, 0)
        cov[t, :, t] = f @ cov[t - 1, :, t - 1] @ f.T + of["transition_covariance"][t]
    h = np.zeros((T, P, T, D))
    r = np.zeros((T, P, T, P))
    for t in range(T):
        h[t, :, t], r[t, :, t] = of["observation"][t], of["observation_covariance"][t]
    return (
        means.ravel(),
        cov.reshape(T * D, -1),
        h.reshape(T * P, -1),
        r.reshape(T * P, -1),
    )


def exact(model, y):
    means, cov, h, r = joint(model)
    seen = np.flatnonzero(~np.isnan(y.ravel()))
    h, r = h[seen], r[np.ix_(seen, seen)]
    density = multivariate_normal(h @ means, h @ cov @ h.T + r).logpdf(y.ravel()[seen])
    filtered = []
    for t in range(T):
        now = seen < (t + 1) * P
        s = h[now] @ cov @ h[now].T + r[np.ix_(now, now)]
        gain = np.linalg.solve(s, h[now] @ cov).T
        mean = means + gain @ (y.ravel()[seen[now]] - h[now] @ means)
        at = slice(t * D, (t + 1) * D)
        filtered.append((mean[at], (cov - gain @ h[now] @ cov)[at, at]))
    return [np.array(x) for x in zip(*filtered, strict=True)], density


def variables(model):
    return {
        k: pt.TensorType("float64", (None,) * np.ndim(x))(k) for k, x in {"y": Y, **model}.items()
    }


@FORMS
@pytest.mark.parametrize("make", [dict, changing], ids=["one matrix", "one for each step"])
def test_a_kalman_filter(parallel, make):
    model = make(MODEL)
    inputs = variables(model)
    f = jaxify([*inputs.values()], list(kalman_filter(*inputs.values(), parallel=parallel)))
    missing = Y.copy()
    missing[2] = np.nan
    for y in (Y, missing):
        means, covariances, density = f(y, *model.values())
        (want_means, want_covariances), want = exact(model, y)
        np.testing.assert_allclose(means, want_means, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(covariances, want_covariances, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(density, want, rtol=1e-10)
    said = any("AssociativeScan{Kalman filter}" in remark for remark in f.remarks)
    assert said == parallel


def test_gradients_of_a_kalman_filter():
    inputs = variables(MODEL)
    args = Y, *MODEL.values()
    found = []
    for parallel in (False, True):
        density = kalman_filter(*inputs.values(), parallel=parallel).log_likelihood
        f = jaxify([*inputs.values()], density)
        found.append(jax.jit(jax.grad(f, tuple(range(len(args)))))(*args))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)
    step = 1e-6 * np.ones_like(args[1])
    difference = f(Y, args[1] + step, *args[2:]) - f(Y, args[1] - step, *args[2:])
    np.testing.assert_allclose((found[1][1] * step).sum() * 2, difference, rtol=1e-6)


@pytest.mark.slow
def test_a_kalman_filter_as_native_code():
    inputs = variables(MODEL)
    args = Y, *MODEL.values()
    density = kalman_filter(*inputs.values()).log_likelihood
    outs = [density, pytensor.grad(density, inputs["transition"])]
    native = jaxify([*inputs.values()], outs, backend="numba")(*args)
    in_jax = jaxify([*inputs.values()], outs)(*args)
    for one, two in zip(native, in_jax, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


K = 3
INITIAL = np.log(RNG.dirichlet(np.ones(K)))
STAY = np.log(RNG.dirichlet(np.ones(K), size=K))
SEEN = RNG.normal(size=(T, K)) * 3


def all_paths(initial, transition, seen):
    """The log density by a sum over all paths of states, and of those that end in each state."""
    ends = [[] for _ in range(K)]
    for path in itertools.product(range(K), repeat=len(seen)):
        total = initial[path[0]] + seen[0, path[0]]
        for t in range(1, len(seen)):
            total += transition[t, path[t - 1], path[t]] + seen[t, path[t]]
        ends[path[-1]].append(total)
    by_end = np.array([logsumexp(x) for x in ends])
    return by_end - logsumexp(by_end), logsumexp(by_end)


@FORMS
@pytest.mark.parametrize("changes", [False, True])
def test_an_hmm(parallel, changes):
    each = np.stack([np.roll(STAY, t, axis=1) for t in range(T)]) if changes else STAY
    inputs = [pt.dvector("a"), (pt.dtensor3 if changes else pt.dmatrix)("b"), pt.dmatrix("c")]
    f = jaxify(inputs, list(hmm_forward(*inputs, parallel=parallel)))
    filtered, density = f(INITIAL, each, SEEN)
    every = np.broadcast_to(each, (T, K, K))
    for t in range(1, T + 1):
        want, total = all_paths(INITIAL, every, SEEN[:t])
        np.testing.assert_allclose(filtered[t - 1], want, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(density, total, rtol=1e-10)


def test_gradients_of_an_hmm_of_many_steps():
    seen = RNG.normal(size=(500, K)) * 20  # its density is far below what a float64 holds
    inputs = [pt.dvector("a"), pt.dmatrix("b"), pt.dmatrix("c")]
    found = []
    for parallel in (False, True):
        f = jaxify(inputs, hmm_forward(*inputs, parallel=parallel).log_likelihood)
        both = jax.jit(jax.value_and_grad(f, (0, 1, 2)))(INITIAL, STAY, seen)
        found.append(jax.tree.leaves(both))
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@FORMS
def test_an_hmm_as_native_code(parallel):
    inputs = [pt.dvector("a"), pt.dmatrix("b"), pt.dmatrix("c")]
    density = hmm_forward(*inputs, parallel=parallel).log_likelihood
    outs = [density, *pytensor.grad(density, inputs)]
    native = jaxify(inputs, outs, backend="numba")(INITIAL, STAY, SEEN)
    for one, two in zip(native, jaxify(inputs, outs)(INITIAL, STAY, SEEN), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)


def test_arguments_of_another_rank():
    with pytest.raises(LoopTypeError, match="takes log_transition as real numbers of rank 2 or 3"):
        hmm_forward(INITIAL, INITIAL, SEEN)
    with pytest.raises(LoopTypeError, match="kalman_filter takes observations as real numbers"):
        kalman_filter(Y[0], *MODEL.values())
