"""Loops that are linear in a semiring, in parallel, against the steps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

from loopax import explain, hmm_forward, jaxify, scan
from tests.support.compare import assert_trees_close, primitives

K, T = 3, 60
RNG = np.random.default_rng(0)
SEEN, WIDE = RNG.normal(size=(T, K)) * 3, RNG.normal(size=(T, 4, K))
P = RNG.dirichlet(np.ones(K), size=K)
LOGS = np.log(P)
START = np.log(np.full(K, 1 / K))

seen, p, wide, x = pt.dmatrix("seen"), pt.dmatrix("p"), pt.dtensor3("wide"), pt.dvector("x")
lse = pt.logsumexp


def forward(a, o):
    return lse(a[:, None] + p, axis=0) + o


def normalised(a, o):
    u = forward(a, o)
    total = lse(u)
    return u - total, total


def with_total(carry, o):
    a, total = normalised(carry[0], o)
    return (a, carry[1] + total), pt.exp(a)


def probabilities(a, o):
    u = (a @ p) * pt.exp(o)
    return u / u.sum(), pt.log(u.sum())


def by_hand(a, o):
    """A logsumexp as one writes it, of matrices of probabilities of which no sign is known."""
    most = a.max()
    return (pt.log(pt.exp(a - most) @ p) + most + o,) * 2


def viterbi(a, o):
    u = a[:, None] + p
    return pt.max(u, axis=0) + o, pt.argmax(u, axis=0)


def left_to_right(a, o):
    """Stay or go on to the next state: no matrix is written anywhere."""
    before = pt.concatenate([np.full(1, -np.inf), a[:-1]])
    both = pt.stack([a, before])
    return (lse(both, axis=0) + o,) * 2


LOG, FACTOR = "state 0 linear in logarithms, 3 x 3", "state 0 linear up to a factor, 3 x 3"
# name: (step, init, inputs, values, what is said of it)
PROGRAMS = {
    "a forward pass in logarithms": (lambda a, o: (forward(a, o),) * 2, START, [seen, p], LOG),
    "normalised": (normalised, START, [seen, p], LOG),
    "and summed up": (with_total, (START, 0.0), [seen, p], LOG),
    "probabilities, normalised": (probabilities, np.exp(START), [seen, p], FACTOR),
    "by the largest of them": (
        lambda a, o: (lambda u: (u / pt.max(u), u))((a @ p) * pt.exp(o)),
        np.exp(START),
        [seen, p],
        FACTOR,
    ),
    "a logsumexp by hand": (by_hand, START, [seen, p], LOG),
    "Viterbi": (viterbi, START, [seen, p], "state 0 linear in maxima, 3 x 3"),
    "Viterbi, normalised": (
        lambda a, o: (lambda u: (u - u.max(), u))(viterbi(a, o)[0]),
        START,
        [seen, p],
        "state 0 linear in maxima, 3 x 3",
    ),
    "shortest paths": (
        lambda a, o: (pt.min(a[:, None] + p, axis=0) + o,) * 2,
        START,
        [seen, p],
        "state 0 linear in minima, 3 x 3",
    ),
    "a chain from left to right": (left_to_right, np.array([0.0, -np.inf, -np.inf]), [seen], LOG),
    "a batch of chains": (
        lambda a, o: (lambda u: (u - lse(u, axis=1, keepdims=True), u))(
            lse(a[:, :, None] + p, axis=1) + o
        ),
        np.zeros((4, K)),
        [wide, p],
        LOG,
    ),
    "the time in a queue": (
        lambda s, r: (pt.maximum(s + r, 0.0), s),
        0.0,
        [x],
        "state 0 linear in maxima, 1 x 1",
    ),
    "a running maximum": (
        lambda s, r: (pt.maximum(s, r),) * 2,
        -np.inf,
        [x],
        "state 0 linear in maxima, 1 x 1",
    ),
    "with a floor in logarithms": (
        lambda s, r: (pt.logaddexp(s + r, 0.1), s),
        0.0,
        [x],
        "state 0 linear in logarithms, 1 x 1",
    ),
}


def values_of(inputs):
    actual = {seen: SEEN, p: LOGS, wide: WIDE, x: SEEN[:, 0]}
    return [actual[v] for v in inputs]


def arguments(name, inputs):
    in_numbers = name in (
        "probabilities, normalised",
        "by the largest of them",
        "a logsumexp by hand",
    )
    return [
        P if v is p and in_numbers else y for v, y in zip(inputs, values_of(inputs), strict=True)
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_steps_one_by_one(name, reverse):
    step, init, inputs, said = PROGRAMS[name]
    outputs, args = scan(step, init, inputs[0], reverse=reverse), arguments(name, inputs)
    parallel, plain = (jaxify(inputs, outputs, parallel=form) for form in (True, False))
    assert_trees_close(parallel(*args), plain(*args), rtol=1e-11, atol=1e-11)
    (remark,) = parallel.remarks
    assert f"{T} steps, in parallel: {said}" in remark
    assert remark in str(explain(parallel))


# The gradient of a logsumexp of nothing but minus infinities is nan, one by one too.
FINITE = [name for name in PROGRAMS if name != "a chain from left to right"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FINITE)
def test_gradients_are_those_of_the_steps_one_by_one(name):
    step, init, inputs, _ = PROGRAMS[name]
    outputs, args = scan(step, init, inputs[0]), arguments(name, inputs)
    parallel, plain = (jaxify(inputs, outputs, parallel=form) for form in (True, False))

    def slopes(f):
        def loss(*args):
            leaves = jax.tree.leaves(f(*args))
            return sum(jnp.sin(y).sum() for y in leaves if y.dtype == float)

        return jax.jit(jax.grad(loss, tuple(range(len(args)))))(*args)

    for a, b in zip(slopes(parallel), slopes(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_no_loop_over_the_steps_is_left():
    step, init, inputs, _ = PROGRAMS["normalised"]
    outputs = scan(step, init, inputs[0])[1]
    args = np.zeros((4096, K)), LOGS
    assert "length=4096" not in str(jax.make_jaxpr(jaxify(inputs, outputs, parallel=True))(*args))
    for form in ("auto", False):
        f = jaxify(inputs, outputs, parallel=form)
        assert primitives(jax.make_jaxpr(f)(*args))["scan"] == 1
        assert "length=4096" in str(jax.make_jaxpr(f)(*args))


@pytest.mark.slow
def test_the_textbook_and_the_builder():
    outputs = scan(with_total, (START, 0.0), seen)[0]
    f = jaxify([seen, p], outputs, parallel=True)
    # The first observation of the builder has no transition before it.
    first = jax.nn.log_softmax(START + SEEN[0]), jax.nn.logsumexp(START + SEEN[0])
    g = jaxify([seen, p], scan(with_total, first, seen[1:])[0], parallel=True)
    built = hmm_forward(START, p, seen)
    wanted = jaxify([seen, p], [built.log_filtered[-1], built.log_likelihood])(SEEN, LOGS)
    for a, b in zip(g(SEEN, LOGS), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
    assert np.isfinite(f(SEEN, LOGS)[1])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["normalised", "probabilities, normalised", "Viterbi"])
def test_of_many_steps(name):
    step, init, inputs, _ = PROGRAMS[name]
    outputs = scan(step, init, inputs[0])[1]
    args = RNG.normal(size=(20_000, K)) * 3, arguments(name, inputs)[1]
    actual, wanted = (jaxify(inputs, outputs, parallel=form)(*args) for form in (True, False))
    np.testing.assert_allclose(actual, wanted, rtol=1e-10)


@pytest.mark.slow
def test_no_state_is_lost_because_it_is_improbable_now():
    """One that is 1e-1000 times as probable as another, and later 1e1000 times."""
    rows = np.zeros((200, K))
    rows[:100, 1], rows[100:, 1] = -30.0, 60.0
    stay = np.log(np.eye(K) * (1 - 3e-20) + 1e-20)
    for name in ("a forward pass in logarithms", "normalised", "Viterbi"):
        step, init, inputs, _ = PROGRAMS[name]
        outputs = scan(step, init, inputs[0])
        f, g = (jaxify(inputs, outputs, parallel=form) for form in (True, False))
        for a, b in zip(f(rows, stay), g(rows, stay), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-10)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["a forward pass in logarithms", "normalised", "Viterbi"])
def test_what_is_impossible_stays_so(name):
    step, init, inputs, _ = PROGRAMS[name]
    outputs = scan(step, init, inputs[0])
    with np.errstate(divide="ignore"):
        stay = np.log(np.array([[0.5, 0.5, 0.0], [0.0, 0.4, 0.6], [0.0, 0.0, 1.0]]))
    rows = SEEN.copy()
    rows[7, 2] = -np.inf
    f, g = (jaxify(inputs, outputs, parallel=form) for form in (True, False))
    for a, b in zip(f(rows, stay), g(rows, stay), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert np.isneginf(f(rows, stay)[1]).any() or name == "normalised" or name == "Viterbi"


def test_coefficients_that_are_negative_take_the_steps_one_by_one():
    """Of no sign is known that a matrix in logarithms would have: that is seen when it runs."""
    step, init, inputs, _ = PROGRAMS["a logsumexp by hand"]
    outputs = scan(step, init, inputs[0])[1]
    f, g = (jaxify(inputs, outputs, parallel=form) for form in (True, False))
    mixed = P.copy()
    mixed[0, 0] = -0.02
    rows = np.zeros((T, K))
    for matrix in (P, mixed):
        actual = f(rows, matrix)
        assert np.isfinite(actual).all()
        np.testing.assert_allclose(actual, g(rows, matrix), rtol=1e-11)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "step",
    [
        lambda a, o: (lse(2 * a[:, None] + p, axis=0) + o, a),
        lambda a, o: (forward(a, o) - 0.5 * lse(a), a),  # of degree 1/2, and no factor that cancels
        lambda a, o: (forward(a, o) - a, a),
        lambda a, o: (forward(a, o) - a.mean() * 0.1, a),
        lambda a, o: (pt.maximum(forward(a, o), o), a),
        lambda a, o: (lse(pt.max(a) + p, axis=0) + o - a[::-1], a),
        lambda a, o: (pt.switch(a > 0, forward(a, o), o), a),
        lambda a, o: (pt.max(a[:, None] + p, axis=0) + lse(a), a),
        lambda a, o: (pt.maximum(a + o, 0.0) - pt.max(a), a),
        lambda a, o: (pt.switch(pt.isinf(pt.max(a)), o, forward(a, o)), a),  # begins anew
        lambda a, o: (pt.switch(pt.isinf(pt.max(a)), 0.0, a + o), a),
    ],
)
def test_what_is_linear_in_no_semiring_is_left_alone(step):
    outputs = scan(step, START, seen)
    f, g = (jaxify([seen, p], outputs, parallel=form) for form in (True, False))
    with pytest.warns(UserWarning, match="takes its steps one by one"):
        actual = f(SEEN / 9, LOGS)
    for a, b in zip(actual, g(SEEN / 9, LOGS), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_state_that_is_infinite_may_mean_something_else():
    """Where the step asks for it, and no logsumexp does: it begins anew."""
    begins = np.array([0.0, -np.inf, -np.inf])
    outputs = scan(
        lambda a, o: (pt.switch(pt.isinf(a), o, pt.maximum(a, o - 1)),) * 2, begins, seen
    )
    f, g = (jaxify([seen], outputs, parallel=form) for form in (True, False))
    with pytest.warns(UserWarning, match="takes its steps one by one"):
        actual = f(SEEN)
    for a, b in zip(actual, g(SEEN), strict=True):
        np.testing.assert_array_equal(a, b)


def random_step(seed):
    """A few operations in a row, of which some are linear in some semiring, and some factors."""
    rng = np.random.default_rng(seed)
    c, v = rng.normal(size=(K, K)), rng.normal(size=K)
    known = [
        lambda u, r, s: lse(u[:, None] + c, axis=0),
        lambda u, r, s: u + r,
        lambda u, r, s: u - lse(u),
        lambda u, r, s: u - u[0],
        lambda u, r, s: u - pt.max(u),
        lambda u, r, s: pt.max(u[:, None] + c, axis=0),
        lambda u, r, s: pt.min(u[None] + c, axis=1),
        lambda u, r, s: u[::-1] + v,
        lambda u, r, s: pt.maximum(u, r),
        lambda u, r, s: pt.logaddexp(u, s),
        lambda u, r, s: u - 0.5 * lse(s),
        lambda u, r, s: pt.switch(r > 0, u, u + 0.2),
        lambda u, r, s: pt.log(pt.exp(u - pt.max(u)) @ P) + pt.max(u),
        lambda u, r, s: pt.minimum(u, s),
    ]
    picked = [known[k] for k in rng.integers(len(known), size=int(rng.integers(1, 5)))]

    def step(s, r):
        u = s
        for f in picked:
            u = f(u, r, s)
        return u, u

    return step


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:.*takes its steps one by one")
@pytest.mark.parametrize("seed", range(8))
def test_random_steps(seed):
    outputs = scan(random_step(seed), START, seen)[1]
    actual, wanted = (jaxify([seen], outputs, parallel=form)(SEEN) for form in (True, False))
    np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_under_vmap_and_in_float32():
    step, init, inputs, _ = PROGRAMS["normalised"]
    f, g = (jaxify(inputs, scan(step, init, seen), parallel=form) for form in (True, False))
    rows = np.stack([SEEN, -SEEN])
    for a, b in zip(*(jax.vmap(h, (0, None))(rows, LOGS) for h in (f, g)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    few = pt.fmatrix("few")
    small = scan(
        lambda a, o: (pt.max(a[:, None] + LOGS.astype("float32"), axis=0) + o,) * 2,
        START.astype("float32"),
        few,
    )
    actual = jaxify([few], small, parallel=True)(SEEN.astype("float32"))
    assert {y.dtype.name for y in actual} == {"float32"}
    wanted = jaxify([few], small)(SEEN.astype("float32"))
    np.testing.assert_allclose(actual[1], wanted[1], rtol=1e-5)


@pytest.mark.slow
def test_inside_of_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("series",))
    over = jax.sharding.PartitionSpec("series")
    rows = np.stack([SEEN] * len(jax.devices()))
    for name in ("normalised", "Viterbi", "probabilities, normalised"):
        step, init, inputs, _ = PROGRAMS[name]
        outputs, matrix = scan(step, init, seen)[0], arguments(name, inputs)[1]

        def run(f, matrix=matrix):
            def each(rows, matrix):
                return f(rows[0], matrix)[None]

            divided = jax.shard_map(
                each, mesh=mesh, in_specs=(over, jax.sharding.PartitionSpec()), out_specs=over
            )
            return jax.jit(divided)(rows, matrix)

        actual, wanted = (
            run(jaxify(inputs, outputs, loops="xla", parallel=form)) for form in (True, False)
        )
        np.testing.assert_allclose(actual, wanted, rtol=1e-10)


@pytest.mark.parametrize("start", [START, np.array([-np.inf, 0.0, 1.0])])
def test_a_state_that_begins_anew_where_it_is_infinite(start):
    values = SEEN.copy()
    values[10, 1], values[20, 2] = -np.inf, np.inf
    outputs = scan(lambda a, o: (pt.switch(pt.isinf(a), 0.0, a + o), a), start, seen)
    f, g = (jaxify([seen], outputs, parallel=form) for form in (True, False))
    assert_trees_close(f(values), g(values), rtol=1e-12)
