"""`kalman_smoother` and `hmm_smoother`, in both forms, against densities of all observations at once."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, hmm_forward, hmm_smoother, jaxify, kalman_filter, kalman_smoother
from tests.extensions.parallel.filters.exact_answers import (
    INITIAL,
    MODEL,
    RNG,
    SEEN,
    STAY,
    K,
    T,
    Y,
    all_paths,
    assert_exact,
    changing,
    variables,
)

FORMS = pytest.mark.parametrize("parallel", [False, True], ids=["loop", "at once"])
HMM = [pt.dvector("a"), pt.dmatrix("b"), pt.dmatrix("c")]


@pytest.mark.sampled(1)
@FORMS
@pytest.mark.parametrize("make", [dict, changing], ids=["one matrix", "one for each step"])
def test_a_kalman_smoother(parallel, make):
    f = assert_exact(kalman_smoother, make(MODEL), parallel, missing=[1, 3], smoothed=True)
    assert any("AssociativeScan{Kalman smoother}" in line for line in f.remarks) == parallel


@pytest.mark.slow
def test_gradients_of_a_kalman_smoother():
    """Of all that it gives, in both forms, and by differences."""
    inputs = variables(MODEL)
    args = Y, *MODEL.values()
    actual = []
    for parallel in (False, True):
        smoothed = kalman_smoother(*inputs.values(), parallel=parallel)
        total = sum(pt.sin(x).sum() for x in smoothed[:3])
        f = jaxify([*inputs.values()], total)
        actual.append(jax.jit(jax.grad(f, tuple(range(len(args)))))(*args))
    for one, two in zip(*actual, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)
    rng = np.random.default_rng(1)
    ways = [1e-5 * rng.normal(size=x.shape) for x in args]
    ways[2], ways[4], ways[6] = (w + w.T for w in (ways[2], ways[4], ways[6]))  # covariances
    moved = [[x + s * w for x, w in zip(args, ways, strict=True)] for s in (1, -1)]
    slope = sum((g * w).sum() for g, w in zip(actual[1], ways, strict=True))
    np.testing.assert_allclose(f(*moved[0]) - f(*moved[1]), 2 * slope, rtol=1e-6)


@pytest.mark.slow
def test_a_smoother_of_many_steps():
    """The last state is the filter's, the others are known no worse than by it; one step is no loop."""
    y = np.cumsum(RNG.normal(size=(2000, 1)), axis=0)
    one = np.ones((1, 1))
    inputs = [pt.dmatrix("y"), pt.dscalar("noise")]
    model = inputs[0], one, inputs[1] * one, one, one, np.zeros(1), one
    forward = jaxify(inputs, list(kalman_filter(*model)[:3]))
    loop, at_once = (
        jaxify(inputs, list(kalman_smoother(*model, parallel=p)[:3])) for p in (False, True)
    )
    for count in (1, 2, 2000):
        actual, wanted = at_once(y[:count], 0.3), loop(y[:count], 0.3)
        for a, b in zip(actual, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
        filtered = forward(y[:count], 0.3)
        np.testing.assert_allclose(actual[0][-1], filtered[0][-1], rtol=1e-10)
        assert (np.asarray(actual[1]) <= np.asarray(filtered[1]) * (1 + 1e-12)).all()


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("changes", [False, True])
def test_an_hmm_smoother(parallel, changes):
    each = np.stack([np.roll(STAY, t, axis=1) for t in range(T)]) if changes else STAY
    inputs = [HMM[0], pt.dtensor3("b") if changes else HMM[1], HMM[2]]
    f = jaxify(inputs, list(hmm_smoother(*inputs, parallel=parallel)))
    for count in (T, 2, 1):
        args = INITIAL, each[:count] if changes else each, SEEN[:count]
        smoothed, density = f(*args)
        every = np.broadcast_to(each, (T, K, K))
        for t in range(count):
            want, total = all_paths(INITIAL, every, SEEN[:count], at=t)
            np.testing.assert_allclose(smoothed[t], want, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(density, total, rtol=1e-10)


@pytest.mark.slow
@FORMS
def test_posterior_marginals_are_the_gradient_by_the_log_likelihoods(parallel):
    """Which ties the smoother to the forward pass, for many steps, and with states that are impossible."""
    seen = RNG.normal(size=(300, K)) * 5
    with np.errstate(divide="ignore"):
        stay = np.log([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.2, 0.0, 0.8]])
    forward = jaxify(HMM, hmm_forward(*HMM).log_likelihood)
    smoothed = jaxify(HMM, hmm_smoother(*HMM, parallel=parallel).log_smoothed)
    marginals = jax.grad(forward, 2)(INITIAL, stay, seen)
    np.testing.assert_allclose(np.exp(smoothed(INITIAL, stay, seen)), marginals, atol=1e-10)


@pytest.mark.slow
def test_gradients_of_an_hmm_smoother():
    actual = []
    for parallel in (False, True):
        smoothed = hmm_smoother(*HMM, parallel=parallel).log_smoothed
        f = jaxify(HMM, pt.sin(pt.exp(smoothed)).sum())
        actual.append(jax.jit(jax.grad(f, (0, 1, 2)))(INITIAL, STAY, SEEN))
    for one, two in zip(*actual, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)
    way = 1e-5 * RNG.normal(size=STAY.shape)
    difference = f(INITIAL, STAY + way, SEEN) - f(INITIAL, STAY - way, SEEN)
    np.testing.assert_allclose(difference, 2 * (actual[1][1] * way).sum(), rtol=1e-6)


def same_as_native(inputs, outs, args):
    native = jaxify(inputs, outs, backend="numba")(*args)
    for one, two in zip(native, jaxify(inputs, outs)(*args), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_kalman_smoother_as_native_code():
    inputs = variables(MODEL)
    smoothed = kalman_smoother(*inputs.values())
    same_as_native([*inputs.values()], list(smoothed), (Y, *MODEL.values()))


@pytest.mark.slow
@FORMS
def test_an_hmm_smoother_as_native_code(parallel):
    outs = list(hmm_smoother(*HMM, parallel=parallel))
    if not parallel:
        outs.append(pytensor.grad(outs[0].sum(), HMM[1]))
    same_as_native(HMM, outs, (INITIAL, STAY, SEEN))


@FORMS
def test_float32(parallel):
    """Nothing in it is of more precision than what is given."""
    initial, stay, seen = (x.astype("float32") for x in (INITIAL, STAY, SEEN))
    for outs in (
        hmm_smoother(initial, stay, seen, parallel=parallel),
        hmm_forward(initial, stay, seen, parallel=parallel),
        kalman_smoother(*(x.astype("float32") for x in (Y, *MODEL.values())), parallel=parallel),
    ):
        assert {v.type.dtype for v in outs} == {"float32"}


def test_arguments_of_another_rank():
    with pytest.raises(LoopTypeError, match="hmm_smoother takes log_transition as real numbers"):
        hmm_smoother(INITIAL, INITIAL, SEEN)
    with pytest.raises(LoopTypeError, match="kalman_smoother takes observations as real numbers"):
        kalman_smoother(Y[0], *MODEL.values())
