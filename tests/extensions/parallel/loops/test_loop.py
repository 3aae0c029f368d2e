"""Loops with affine parts, in parallel, against the steps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import explain, fori_loop, jaxify, lag, scan
from tests.support.compare import assert_trees_close, primitives

N = 50
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)

r, om, al, be = pt.dvector("r"), pt.dscalar("om"), pt.dscalar("al"), pt.dscalar("be")
A, F, d = pt.dmatrix("A"), pt.dtensor3("F"), pt.dvector("d")
ONE, ZERO = pt.constant(1.0, dtype="float64"), pt.constant(0.0, dtype="float64")


def garch(h, x):
    return om + al * x**2 + be * h, -0.5 * (pt.log(h) + x**2 / h)


def arma(c, x):
    e = x - om * c[0] - be * c[1]
    return (x, e), e


def legacy(step, taps, start):
    return pytensor.scan(
        step,
        sequences=[r],
        outputs_info=[{"initial": pt.as_tensor(np.asarray(start)), "taps": taps}],
        return_updates=False,
    )


def wide(x, size):
    return x[:, None] * np.ones(size)


def both(c, x):
    a, b, k = c
    new = pt.tanh(a + x)
    return (new, 0.9 * b + new * x, k + 1), new * b


# name: (inputs, outputs, values, what is said of it)
PROGRAMS = {
    "GARCH": ([r, om, al, be], scan(garch, ONE, r), (X, 0.1, 0.1, 0.8), "1 x 1"),
    "GARCH by pytensor.scan": (
        [r, om, al, be],
        [legacy(lambda x, h: om + al * x**2 + be * h, [-1], [1.0])],
        (X, 0.1, 0.1, 0.8),
        "1 x 1",
    ),
    "an AR(3) by pytensor.scan": (
        [r, om, al],
        [legacy(lambda e, a, b, c: om * a + al * b - 0.1 * c + e, [-1, -2, -3], [0.1, 0.2, 0.3])],
        (X, 0.5, 0.2),
        "3 x 3",
    ),
    "a seasonal lag": (
        [r, om],
        scan(lambda c, x: (om * c[0] + 0.3 * c[1] + x,) * 2, lag(np.zeros(4), [1, 4]), r),
        (X, 0.4),
        "4 x 4",
    ),
    "ARMA residuals": ([r, om, be], scan(arma, (ZERO, ZERO), r)[1], (X, 0.4, 0.3), "1 x 1"),
    "exponential smoothing, a batch of them": (
        [r, d],
        scan(lambda s, x: (d * x + (1 - d) * s, s), pt.zeros(3), r),
        (X, np.array([0.1, 0.5, 0.9])),
        "1 x 1 for each of 3",
    ),
    "a discounted sum, backwards": (
        [r, be],
        scan(lambda s, x: (be * s + x,) * 2, ZERO, r, reverse=True),
        (X, 0.9),
        "1 x 1",
    ),
    "a state space with a matrix for each step": (
        [F, r],
        scan(lambda s, z: (z[0] @ s + z[1], s), pt.ones(3), (F, wide(r, 3))),
        (RNG.normal(size=(N, 3, 3)) * 0.3, X),
        "3 x 3",
    ),
    "a large matrix": (
        [A, r],
        scan(lambda s, z: (A @ s + z, s), pt.ones(6), wide(r, 6)),
        (RNG.normal(size=(6, 6)) * 0.3, X),
        "6 x 6",
    ),
    "rows that a matrix multiplies": (
        [A, r],
        scan(lambda s, z: (s @ A.T + z, s), pt.ones((5, 2)), r),
        (RNG.normal(size=(2, 2)) * 0.4, X),
        "2 x 2 for each of 5",
    ),
    "a choice by what is seen, and the index": (
        [r],
        scan(lambda s, z: (pt.switch(z > 0, 0.9 * s, 0.5 * s + z), 2 * s), ONE, r),
        (X,),
        "1 x 1",
    ),
    "a count": (
        [r],
        scan(lambda c, x: ((c[0] + x, 3 * c[1] + 1), c[1]), (ZERO, 0), r),
        (X,),
        "an affine recurrence",
    ),
    "a part that is not affine before one that is": (
        [r],
        scan(both, (ZERO, ZERO, 0), r),
        (X,),
        "one by one (is not affine because of tanh), ",
    ),
    "no sequence": ([be], fori_loop(0, N, lambda i, s: be * s + i, ONE), (0.9,), "1 x 1"),
}


def loops_in(f):
    return primitives(jax.make_jaxpr(f)(X))["scan"]


def values(f, args):
    return [np.asarray(x) for x in jax.tree.leaves(f(*args))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_those_of_the_steps_one_by_one(name):
    inputs, outputs, args, said = PROGRAMS[name]
    parallel = jaxify(inputs, outputs, parallel=True)
    plain = jaxify(inputs, outputs, parallel=False)
    assert_trees_close(parallel(*args), plain(*args))
    assert any(said in remark for remark in parallel.remarks)

    def slopes(f):
        def loss(*args):
            return sum(jnp.sin(x).sum() for x in jax.tree.leaves(f(*args)))

        return jax.jit(jax.grad(loss, tuple(range(len(args)))))(*args)

    for x, y in zip(slopes(parallel), slopes(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


def test_derivatives_of_pytensor_are_affine_again():
    _, rows = scan(garch, ONE, r)
    slopes = pytensor.grad(rows.sum(), [om, al, be])
    args = (X, 0.1, 0.1, 0.8)
    parallel = jaxify([r, om, al, be], slopes, parallel=True)
    np.testing.assert_allclose(parallel(*args), jaxify([r, om, al, be], slopes)(*args), rtol=1e-9)
    assert len(parallel.remarks) == 2
    assert all("in parallel: state 0 an affine recurrence" in said for said in parallel.remarks)
    native = jaxify([r, om, al, be], slopes, parallel=True, backend="numba")
    np.testing.assert_allclose(native(*args), parallel(*args), rtol=1e-9)


def test_no_loop_over_the_steps_is_left():
    inputs, outputs, args, _ = PROGRAMS["GARCH"]
    args = (np.zeros(4096), *args[1:])
    f = jaxify(inputs, outputs, parallel=True)
    text = str(jax.make_jaxpr(f)(*args))
    assert "length=15" in text
    assert "length=4096" not in text
    assert "length=4096" in str(jax.make_jaxpr(jaxify(inputs, outputs))(*args))


def test_auto_changes_nothing_on_a_cpu_and_says_why():
    inputs, outputs, args, _ = PROGRAMS["GARCH"]
    args = (np.ones(2000), *args[1:])
    auto, never = jaxify(inputs, outputs), jaxify(inputs, outputs, parallel=False)
    assert str(jax.make_jaxpr(auto)(*args)) == str(jax.make_jaxpr(never)(*args))
    auto(*args)
    (said,) = [s for s in auto.remarks if "one by one" in s]
    assert "on a CPU blocks of steps are slower" in said
    assert said in str(explain(auto))
    never(*args)
    assert not [s for s in never.remarks if "one by one" in s]


@pytest.mark.parametrize(
    ("step", "by"),
    [
        (lambda s, x: (pt.maximum(s, 0.3 * s) + x, s), "max"),
        (lambda s, x: (0.5 * s + pt.sign(s) + x, s), "eq"),
        (lambda s, x: (s * (s + x), s), "mul"),
        (lambda s, x: (pt.switch(s > 0, s, 0.5 * s) + x, s), "gt"),
    ],
)
def test_what_is_not_affine_is_left_alone_and_said(step, by):
    f = jaxify([r], scan(step, ONE, r, name="bent"), parallel=True)
    plain = jaxify([r], scan(step, ONE, r))
    with pytest.warns(
        UserWarning, match=r"Scan\{bent\} takes its steps one by one, with parallel="
    ):
        assert loops_in(f) == loops_in(plain) == 1
    f(X)  # it has been said
    said = f"Scan{{bent}}, 50 steps, one by one: state 0 is not affine because of {by}"
    assert f.remarks == [said]
    assert said in str(explain(f))


def test_what_cannot_be_a_matrix_is_said():
    f = jaxify([r], scan(lambda s, x: (s ^ (x > 0), s), False, r), parallel=True)
    with pytest.warns(
        UserWarning, match="state 0 is not of numbers of one dtype. Leave parallel out"
    ):
        f(X)
    g = jaxify([r], scan(lambda s, x: (pt.tanh(s) + x, s), ONE, r, checkpoint=1), parallel=True)
    with pytest.warns(UserWarning, match="it keeps few states, with checkpoint"):
        g(X)


def test_what_is_not_asked_for_by_name_is_no_warning():
    for how in ("auto", False):
        jaxify([r], scan(lambda s, x: (pt.tanh(s) + x, s), ONE, r), parallel=how)(X)
        jaxify([r], scan(lambda s, x: (s + x, s, s > 3), ONE, r)[2], parallel=how)(X)
    jaxify([r], loopax.map(pt.tanh, r), parallel=True)(X)  # no carry: all steps at once anyway


def test_a_number_of_steps_that_is_traced():
    n = pt.lscalar("n")
    f = jaxify([n, be], fori_loop(0, n, lambda i, s: be * s + i, ONE), parallel=True)
    plain = jaxify([n, be], fori_loop(0, n, lambda i, s: be * s + i, ONE))
    with pytest.warns(
        UserWarning, match="its number of steps is traced. To take all steps at once"
    ):
        np.testing.assert_allclose(f(50, 0.9), plain(50, 0.9), rtol=1e-12)
    assert f.remarks == ["Scan{loop}, of unknown number, one by one: its number of steps is traced"]
    static = jax.jit(f, static_argnums=0)
    np.testing.assert_allclose(static(50, 0.9), plain(50, 0.9), rtol=1e-12)
    assert "50 steps, in parallel" in f.remarks[-1]
    smooth = loopax.scan(
        lambda s, _: (pt.tanh(be * s) + 0.1, None), ONE, length=n, parallel="newton"
    )
    g = jaxify([n, be], smooth[0])
    with pytest.warns(UserWarning, match="with parallel='newton': its number of steps is traced"):
        g(50, 0.9)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_affine_steps(seed):
    """A few states, of which each may read the others and a row, in coefficients and offsets."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 4))
    shape = [(), (2,)][int(rng.integers(2))]

    def known(x):
        return [pt.sin(x), 0.3 * x, pt.constant(0.4), pt.switch(x > 0, 0.2, -0.3)][
            int(rng.integers(4))
        ]

    picks = [[(k, j) for j in range(count) if rng.random() < 0.6] for k in range(count)]

    def step(states, x):
        state = np.random.default_rng(seed).bit_generator.state
        rng.bit_generator.state = state  # the step is traced more than once
        nexts = [
            sum((known(x) * states[j] for _, j in p), start=known(x) + 0 * s)
            for p, s in zip(picks, states, strict=True)
        ]
        return tuple(nexts), sum(nexts)

    init = tuple(pt.constant(rng.normal(size=shape)) for _ in range(count))
    reverse = bool(rng.integers(2))
    outputs = scan(step, init, r, reverse=reverse)
    actual = values(jaxify([r], outputs, parallel=True), (X,))
    expected = values(jaxify([r], outputs, parallel=False), (X,))
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=f"seed {seed}")


def test_batches_and_options():
    inputs, outputs, args, _ = PROGRAMS["GARCH"]
    f = jaxify(inputs, outputs, parallel=True)
    plain = jaxify(inputs, outputs, parallel=False)
    rows = np.stack([X, 2 * X, -X])
    axes = (0, None, None, None)
    actual = jax.vmap(f, in_axes=axes)(rows, *args[1:])
    expected = jax.vmap(plain, in_axes=axes)(rows, *args[1:])
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10)
    with pytest.raises(
        ValueError, match=r"parallel must be one of \('auto', True, False\), got 'yes'"
    ):
        jaxify(inputs, outputs, parallel="yes")
    assert f.options["parallel"] is True


def test_loops_too_short_or_that_stop_stay_loops():
    f = jaxify([be], fori_loop(0, 1, lambda i, s: be * s + i, ONE), parallel=True)
    assert f(0.5) == 0.5
    assert not f.remarks
    final, _, stopped = scan(lambda s, x: (be * s + x, s, s > 3), ONE, r)
    g = jaxify([r, be], [final, stopped], parallel=True)
    h = jaxify([r, be], [final, stopped], parallel=False)
    with pytest.warns(UserWarning, match="it stops where its step says so. .* pt.switch"):
        actual = g(X, 0.9)
    for x, y in zip(actual, h(X, 0.9), strict=True):
        np.testing.assert_array_equal(x, y)
    (said,) = g.remarks
    assert said.endswith("one by one: it stops where its step says so")
    assert said in str(explain(g))
    rows = scan(lambda s, x: (be * s + x, s, s > 3), ONE, r)[1]
    reader = jaxify([r, be], scan(lambda s, x: (be * s + x, s), ONE, rows)[0], parallel=True)
    with pytest.warns(UserWarning) as caught:
        reader(X, 0.9)
    assert any("rows of a trace whose length is known at the end" in str(w.message) for w in caught)


def test_a_decorated_function_takes_the_option():
    @loopax.jaxify(parallel=True)
    def smooth(x, weight):
        return scan(lambda s, row: (weight * row + (1 - weight) * s,) * 2, 0.0, x)[1]

    expected = [0.0]
    for x in X:
        expected.append(0.3 * x + 0.7 * expected[-1])
    np.testing.assert_allclose(smooth(X, 0.3), expected[1:], rtol=1e-10)


def test_inside_of_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("series",))
    over = jax.sharding.PartitionSpec("series")
    inputs, outputs, args, _ = PROGRAMS["GARCH"]
    rows = np.stack([X] * len(jax.devices()))

    def loss(f):
        def each(rows, weight):
            terms = f(rows[0], *args[1:-1], weight)[1]
            return jnp.sin(terms).sum()[None]

        divided = jax.shard_map(
            each, mesh=mesh, in_specs=(over, jax.sharding.PartitionSpec()), out_specs=over
        )
        return jax.jit(jax.value_and_grad(lambda w: divided(rows, w).sum()))(args[-1])

    actual, expected = [
        loss(jaxify(inputs, outputs, loops="xla", parallel=form)) for form in (True, False)
    ]
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
