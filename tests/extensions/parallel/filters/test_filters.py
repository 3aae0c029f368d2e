"""`kalman_filter` and `hmm_forward`, in both forms, against densities of all observations at once."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, hmm_forward, jaxify, kalman_filter
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


@pytest.mark.sampled(1)
@FORMS
@pytest.mark.parametrize("make", [dict, changing], ids=["one matrix", "one for each step"])
def test_a_kalman_filter(parallel, make):
    f = assert_exact(kalman_filter, make(MODEL), parallel, missing=[2])
    assert any("AssociativeScan{Kalman filter}" in line for line in f.remarks) == parallel


@pytest.mark.slow
def test_gradients_of_a_kalman_filter():
    inputs = variables(MODEL)
    args = Y, *MODEL.values()
    actual = []
    for parallel in (False, True):
        density = kalman_filter(*inputs.values(), parallel=parallel).log_likelihood
        f = jaxify([*inputs.values()], density)
        actual.append(jax.jit(jax.grad(f, tuple(range(len(args)))))(*args))
    for one, two in zip(*actual, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)
    step = 1e-6 * np.ones_like(args[1])
    difference = f(Y, args[1] + step, *args[2:]) - f(Y, args[1] - step, *args[2:])
    np.testing.assert_allclose((actual[1][1] * step).sum() * 2, difference, rtol=1e-6)


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


@pytest.mark.sampled(1)
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


@pytest.mark.slow
def test_gradients_of_an_hmm_of_many_steps():
    seen = RNG.normal(size=(500, K)) * 20  # its density is far below what a float64 holds
    inputs = [pt.dvector("a"), pt.dmatrix("b"), pt.dmatrix("c")]
    actual = []
    for parallel in (False, True):
        f = jaxify(inputs, hmm_forward(*inputs, parallel=parallel).log_likelihood)
        both = jax.jit(jax.value_and_grad(f, (0, 1, 2)))(INITIAL, STAY, seen)
        actual.append(jax.tree.leaves(both))
    for one, two in zip(*actual, strict=True):
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


IMPOSSIBLE = {
    "a state that is never left, and one that is never reached": (
        [1.0, 0.0, 0.0],
        [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]],
        SEEN,
    ),
    "what is seen is impossible in some states": (
        [0.5, 0.5, 0.0],
        [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]],
        np.where(np.arange(T * K).reshape(T, K) % 5 == 4, -np.inf, SEEN),
    ),
    "so much less probable that exp of it is 0": (
        [1.0, 0.0, 0.0],
        np.eye(K),
        SEEN + 1000.0 * np.array([0, 1, 0]),
    ),
}


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_is_impossible_has_log_probability_minus_infinity(parallel, name):
    """And no gradient is nan."""
    initial, stay, seen = IMPOSSIBLE[name]
    with np.errstate(divide="ignore"):
        args = np.log(initial), np.log(stay), seen
    inputs = [pt.dvector("a"), pt.dmatrix("b"), pt.dmatrix("c")]
    actual = hmm_forward(*inputs, parallel=parallel)
    with np.errstate(invalid="ignore"):
        want, density = all_paths(args[0], np.broadcast_to(args[1], (T, K, K)), seen)
    f = jaxify(inputs, [actual.log_filtered[-1], actual.log_likelihood])
    np.testing.assert_allclose(f(*args)[0], want, rtol=1e-9)
    np.testing.assert_allclose(f(*args)[1], density, rtol=1e-12)
    slopes = jax.grad(lambda *args: f(*args)[1], (0, 1, 2))(*args)
    assert all(np.isfinite(x).all() for x in slopes)
    by_state = jax.nn.softmax(f(*args)[0])  # of the last observation
    np.testing.assert_allclose(slopes[2][-1], by_state, atol=1e-12)


def test_arguments_of_another_rank():
    with pytest.raises(LoopTypeError, match="takes log_transition as real numbers of rank 2 or 3"):
        hmm_forward(INITIAL, INITIAL, SEEN)
    with pytest.raises(LoopTypeError, match="kalman_filter takes observations as real numbers"):
        kalman_filter(Y[0], *MODEL.values())
