"""Newton's method on whole trajectories, against the steps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import ConvergenceError, LoopTypeError, jaxify, scan

N = 300
X = np.random.default_rng(0).normal(size=N)
x, rate = pt.dvector("x"), pt.dscalar("rate")
W, U = pt.dtensor3("W"), pt.dmatrix("U")


def logistic(s, row):
    return (rate * s * (1 - s) + 0.01 * row,) * 2


def gru(h, row):
    keep = pt.sigmoid(W[0] @ h + U[0] * row)
    reset = pt.sigmoid(W[1] @ h + U[1] * row)
    new = pt.tanh(W[2] @ (reset * h) + U[2] * row)
    return ((1 - keep) * new + keep * h,) * 2


def gru_values(size=3):
    rng = np.random.default_rng(1)
    return rng.normal(size=(3, size, size)) * 0.7, rng.normal(size=(3, size))


def trajectory(step, start, **options):
    return scan(step, start, x, **options)[1]


def compared(step, start, inputs, args):
    by_newton = jaxify(inputs, trajectory(step, start, parallel="newton"))
    plain = jaxify(inputs, trajectory(step, start), parallel=False)
    np.testing.assert_allclose(by_newton(*args), plain(*args), rtol=0, atol=1e-8)
    assert any("by Newton's method" in said for said in by_newton.remarks)

    def slopes(f):
        def loss(*args):
            return jnp.sin(f(*args)).sum()

        return jax.jit(jax.grad(loss, tuple(range(len(args)))))(*args)

    for a, b in zip(slopes(by_newton), slopes(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


START = pt.constant(0.3, dtype="float64")


def pendulum(s, row):
    a, v = s
    new = a + 0.02 * v, v + 0.02 * (row - pt.sin(a) - 0.1 * v)
    return new, new[0]


def test_a_residual_that_grows_before_it_vanishes():
    """Whole steps are tried: damped ones alone do not come to the end of this in 100 iterations."""
    forces = np.random.default_rng(0).normal(size=1000)
    paths = [
        scan(pendulum, (2.0, 0.0), x, **options)[1] for options in ({"parallel": "newton"}, {})
    ]
    actual, wanted = (jaxify([x], path)(forces) for path in paths)
    np.testing.assert_allclose(actual, wanted, atol=1e-8)


@pytest.mark.slow
def test_a_logistic_map():
    compared(logistic, START, [rate, x], (2.8, X))


@pytest.mark.slow
def test_a_recurrent_network():
    compared(gru, pt.zeros(3), [W, U, x], (*gru_values(), X))


@pytest.mark.slow
def test_ten_thousand_steps():
    longer = np.random.default_rng(2).normal(size=10_000)
    compared(logistic, START, [rate, x], (2.8, longer))
    compared(gru, pt.zeros(3), [W, U, x], (*gru_values(), longer))


def test_elements_that_do_not_mix_have_a_jacobian_each():
    def step(s, row):
        return (pt.tanh(0.5 * s + row),) * 2

    compared(step, pt.zeros(4), [x], (X,))
    by_newton = jaxify([x], trajectory(step, pt.zeros(4), parallel="newton"))
    text = str(jax.make_jaxpr(by_newton)(X))
    assert "f64[300,1,1,4]" in text
    assert "f64[300,4,4,1]" not in text


@pytest.mark.slow
def test_second_derivatives_and_batches():
    def second(f):
        return jax.jit(jax.vmap(jax.hessian(lambda v: f(v, X[:40]).sum())))(jnp.array([2.0, 2.8]))

    by_newton = jaxify([rate, x], trajectory(logistic, START, parallel="newton"))
    plain = jaxify([rate, x], trajectory(logistic, START), parallel=False)
    np.testing.assert_allclose(second(by_newton), second(plain), rtol=1e-7)


def test_gradients_of_pytensor():
    outs = [trajectory(logistic, START, parallel="newton"), trajectory(logistic, START)]
    by_newton, plain = [jaxify([rate, x], pytensor.grad(y.sum(), rate)) for y in outs]
    np.testing.assert_allclose(by_newton(2.8, X), plain(2.8, X), rtol=1e-8)
    said = " ".join(by_newton.remarks)
    assert "by Newton's method" in said
    assert "pullback" in said
    assert "an affine recurrence" in said


def test_a_chaotic_map_says_that_it_did_not_converge():
    chaotic = jaxify(
        [rate, x], trajectory(logistic, START, parallel="newton", max_iters=20, tol=1e-9)
    )
    message = r"did not converge in 20 iterations.*tol=1e-09.*otherwise='sequential'"
    for _ in range(2):  # the first call compiles
        with pytest.raises(ConvergenceError, match=message):
            chaotic(3.9, np.zeros(N))
    np.testing.assert_allclose(chaotic(2.0, np.zeros(N))[-1], 0.5)


def test_or_takes_the_steps_one_by_one():
    options = {"parallel": "newton", "max_iters": 5, "otherwise": "sequential"}
    rows = np.zeros(N)
    actual = jaxify([rate, x], trajectory(logistic, START, **options))(3.9, rows)
    np.testing.assert_array_equal(actual, jaxify([rate, x], trajectory(logistic, START))(3.9, rows))


def test_parts_that_are_affine_are_solved_at_once():
    def step(c, row):
        s, t, k = c
        new = pt.tanh(s + row)
        return (new, 0.9 * t + new, k + 1), t

    outs = scan(step, (0.0, 0.0, 0), x, parallel="newton", name="both")
    f = jaxify([x], outs)
    for a, b in zip(
        jax.tree.leaves(f(X)),
        jax.tree.leaves(jaxify([x], scan(step, (0.0, 0.0, 0), x))(X)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=1e-9)
    (said,) = [remark for remark in f.remarks if "both" in remark]
    assert "by Newton's method" in said
    assert "an affine recurrence" in said


def test_native_code_takes_the_steps_one_by_one():
    y = trajectory(logistic, START, parallel="newton", reverse=True)
    native = jaxify([rate, x], y, backend="numba")
    np.testing.assert_allclose(native(2.8, X), jaxify([rate, x], y)(2.8, X), atol=1e-9)


def test_loops_with_it_are_no_other_loops():
    ys = [trajectory(logistic, START, **o) for o in ({}, {"parallel": "newton"})]
    f = jaxify([rate, x], ys)
    assert loopax.explain(f).counts_lowered.loops == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parallel": "deer"}, "parallel must be 'newton' or None for a loop, got 'deer'"),
        ({"tol": 1e-3}, "tol apply only to Newton's method"),
        ({"parallel": "newton", "tol": 0.0}, "tol must be a number above 0, got 0.0"),
        ({"parallel": "newton", "max_iters": 0}, "max_iters must be .*, got 0"),
        ({"parallel": "newton", "otherwise": "stop"}, "otherwise must be .*, got 'stop'"),
        ({"parallel": "newton", "checkpoint": 3}, "Leave one of them out"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        trajectory(logistic, START, **options)


def test_loops_that_cannot_take_all_steps_at_once():
    with pytest.raises(LoopTypeError, match="its step returns a stop flag"):
        scan(lambda s, row: (s / 2, s, s < 0.1), START, x, parallel="newton")
    rng = pytensor.shared(np.random.default_rng(0))
    with pytest.raises(LoopTypeError, match="carry.*, not an array"):

        def step(c, row):
            return (c[0], c[1] + row), None

        scan(step, (rng, 0.0), x, parallel="newton")


def test_inside_of_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("series",))
    over = jax.sharding.PartitionSpec("series")
    f = jaxify([rate, x], trajectory(logistic, START, parallel="newton"))
    rows = np.stack([X] * len(jax.devices()))
    divided = jax.shard_map(
        lambda rows: f(2.8, rows[0])[None], mesh=mesh, in_specs=over, out_specs=over
    )
    np.testing.assert_allclose(jax.jit(divided)(rows)[0], f(2.8, X), rtol=1e-12)
