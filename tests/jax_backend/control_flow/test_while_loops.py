"""Loops that stop, and bare loops, as ``lax.while_loop``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import DynamicShapeError, LoopTypeError, explain, jaxify
from loopax.ir import BodyArgs, BodyOuts, Scan, ScanArgs, ScanOptions, evaluate
from tests.support.bare_loops import While
from tests.support.compare import assert_agrees, imported, primitives

UNBOUNDED = np.iinfo("int64").max


def growing(n_steps, s, limit, xs=None, reverse=False):
    """Doubles, and adds a row and the index, until a limit; everything the loop returns."""
    i, x, state, top = pt.lscalar(), pt.dscalar(), pt.dscalar(), pt.dscalar()
    new = 2 * state + 0.1 * i + (0 if xs is None else x)
    rows = [] if xs is None else [x]
    scan = Scan.from_body(
        BodyArgs(i, rows, [state], [top]),
        BodyOuts([new], [new * 3], new > top),
        ScanOptions(reverse=reverse),
    )
    return scan.bind(ScanArgs(n_steps, [] if xs is None else [xs], [s], [limit]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("reverse", [False, True])
def test_over_a_sequence(reverse):
    s, limit, xs = pt.dscalar("s"), pt.dscalar("limit"), pt.dvector("xs")
    final, _, n_done, stopped = growing(xs.shape[0], s, limit, xs, reverse)
    f = [s, limit, xs], [final, n_done, stopped]
    rows = np.linspace(0.5, 1.0, 5)
    for start, top, n in ((1.0, 9.0, 5), (1.0, 1e9, 5), (1.0, 0.0, 5), (1.0, 9.0, 0)):
        assert_agrees(*f, [start, top, rows[:n]], direct=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bound", [0, 3, 50, UNBOUNDED])
def test_the_bound_may_be_traced_or_none(bound):
    n, s = pt.lscalar("n"), pt.dscalar("s")
    final, _, n_done, stopped = growing(n, s, 100.0)
    actual = assert_agrees([n, s], [final, n_done, stopped], [bound, 1.0])
    assert bool(actual[2]) == (bound > 3)
    fixed = jaxify([s], growing(bound, s, 100.0)[0])
    np.testing.assert_allclose(fixed(1.0), actual[0])
    assert primitives(jax.make_jaxpr(fixed)(1.0))["while"] == (bound > 0)


def test_a_negative_bound_gives_no_number():
    n, s = pt.lscalar("n"), pt.dscalar("s")
    final, _, n_done, _ = growing(n, s, 100.0)
    actual = jax.jit(jaxify([n, s], [final, n_done]))(-1, 1.0)
    assert np.isnan(actual[0]) and actual[1] == np.iinfo("int64").min
    with pytest.raises(ValueError, match="got -1 steps"):
        jaxify([s], growing(-1, s, 100.0)[0])(1.0)


def test_each_row_of_a_batch_stops_on_its_own():
    s, limit, xs = pt.dscalar("s"), pt.dscalar("limit"), pt.dvector("xs")
    final, _, n_done, stopped = growing(xs.shape[0], s, limit, xs)
    f = jaxify([s, limit, xs], [final, n_done, stopped])
    starts, limits, rows = np.array([1.0, 0.1, 5.0]), np.array([9.0, 1e9, 0.0]), np.ones((3, 6))
    actual = jax.jit(jax.vmap(f))(starts, limits, rows)
    alone = [f(*row) for row in zip(starts, limits, rows, strict=True)]
    for k, x in enumerate(actual):
        np.testing.assert_allclose(x, np.stack([a[k] for a in alone]))
    assert len(set(actual[1].tolist())) == 3
    only_limit = jax.vmap(f, in_axes=(None, 0, None))(1.0, limits, rows[0])
    np.testing.assert_allclose(
        only_limit[0], [f(1.0, limit, rows[0])[0] for limit in limits], rtol=1e-14
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_trace_has_as_many_rows_as_steps(reverse):
    s, limit, xs = pt.dscalar("s"), pt.dscalar("limit"), pt.dvector("xs")
    outs = growing(xs.shape[0], s, limit, xs, reverse)
    f = jaxify([s, limit, xs], outs)
    graph = imported([s, limit, xs], outs).graph
    for n, top in ((0, 20.0), (6, 20.0), (6, 1e9), (6, 0.0)):
        values = [np.asarray(1.0), np.asarray(top), np.linspace(0.5, 1.0, n)]
        for actual, expected in zip(f(*values), evaluate(graph, *values), strict=True):
            actual = np.asarray(actual)
            np.testing.assert_allclose(actual, expected)
            assert actual.dtype == expected.dtype


def test_a_trace_without_a_bound():
    s = pt.dscalar("s")
    f = jaxify([s], growing(UNBOUNDED, s, 100.0)[1])
    with pytest.raises(
        DynamicShapeError, match=r"has no bound on its steps, and its trace.*length=1000"
    ):
        f(1.0)


def test_a_bound_that_was_moved_in_front_of_the_loop_around():
    """A row of a sequence lies where the sequence does: at most three steps, in each of the outer ones."""
    xs = pt.dvector("xs")

    def until_positive(start, x):
        x = loopax.while_loop(lambda c: c < 0.3, lambda c: pt.exp(start), pt.sin(x), max_steps=3)
        return x, x

    ys = loopax.scan(until_positive, pt.constant(0.5), xs)[1]
    assert "n_steps=x0" in str(explain([xs], ys)).split("push_out")[-1]
    values = np.array([0.1, 1.5, -2.0])
    slope = jax.grad(jaxify([xs], ys.sum()))(values)
    of_both = np.cos(1.5) * (1 + np.exp(np.sin(1.5)))  # the last step begins with the second state
    np.testing.assert_allclose(slope, [0.0, of_both, 0.0], rtol=1e-12)


def test_a_bound_that_is_an_array_without_jit():
    """A number that JAX has computed, and not traced, while it traces the loop around."""
    xs = pt.dvector("xs")
    total = loopax.scan(lambda c, x: (c + x, None), np.float64(0), xs)[0]
    n = pt.switch(total > 0, 3, 0)

    def step(c, _):
        final, rows, *_ = growing(n, c, 10.0)
        return final, rows.sum()

    final, sums = loopax.scan(step, np.float64(1), None, length=2)
    run = jaxify([xs], [final, sums], jit=False, loops="xla")
    np.testing.assert_allclose(run(np.ones(3))[1], jaxify([xs], sums, backend="numba")(np.ones(3)))


def test_the_program_that_the_message_shows_works():
    """A loop that runs all its steps, with a state that stays true, and masked rows."""
    i, state, done, count = pt.lscalar(), pt.dscalar(), pt.scalar(dtype="bool"), pt.lscalar()
    new = pt.where(done, state, 2 * state)
    body = BodyOuts([new, done | (new > 20.0), count + pt.cast(~done, "int64")], [new])
    scan = Scan.from_body(BodyArgs(i, [], [state, done, count], []), body)
    s = pt.dscalar("s")
    *_, n_done, trace = scan.bind(ScanArgs(6, [], [s, np.array(False), np.array(0)], []))
    out = pt.where(pt.arange(6) < n_done, trace, 0)
    assert_agrees([s], out, [1.0])


def test_derivatives_forward():
    s, limit, xs = pt.dscalar("s"), pt.dscalar("limit"), pt.dvector("xs")
    f = jaxify([s, limit, xs], growing(xs.shape[0], s, limit, xs)[0])
    _, slope = jax.jvp(lambda s: f(s, 9.0, np.ones(6)), (1.0,), (1.0,))
    assert slope == 8.0  # three steps


def halving():
    x, y = pt.dscalar(), pt.dvector()
    c = pt.dscalar()
    return While.from_body([x, y], [c], [x / 2, y + x], x > c)


@pytest.mark.parametrize("start", [0.5, 20.0])
def test_a_bare_loop(start):
    x, y, c = pt.dscalar("x"), pt.dvector("y"), pt.dscalar("c")
    outs = halving().bind(x > 1, [x, y], [c])
    assert_agrees([x, y, c], outs, [start, np.arange(3.0), 1.0], vmap=[0, 1])
    jaxpr = jax.make_jaxpr(jaxify([x, y, c], outs))(start, np.arange(3.0), 1.0)
    assert primitives(jaxpr)["while"] == 1


def test_a_bare_loop_in_a_loop():
    x, s = pt.dscalar(), pt.dscalar()
    inner = halving().bind(x > 1, [x, pt.zeros(2)], [s])
    scan = Scan.from_body(
        BodyArgs(pt.lscalar(), [x], [s], []), BodyOuts([s + inner[0]], [inner[1]])
    )
    xs = pt.dvector("xs")
    assert_agrees(
        [xs],
        scan.bind(ScanArgs(xs.shape[0], [xs], [pt.zeros(())], [])),
        [np.array([0.5, 9.0, 30.0])],
    )


def test_a_bare_loop_over_integers_fills_a_buffer():
    i, buffer, n = pt.lscalar(), pt.dvector(), pt.lscalar()
    body = While.from_body([i, buffer], [n], [i + 1, buffer[i].set(pt.sqrt(i))], i + 1 < n)
    size = pt.lscalar("size")
    out = body.bind(size > 0, [0, pt.zeros(4)], [size])[1]
    assert_agrees([size], out, [3])


def test_a_state_keeps_its_shape():
    y = pt.dvector()
    grow = While.from_body([y], [], [pt.concatenate([y, y])], y.sum() < 9)
    x = pt.dvector("x")
    with pytest.raises(LoopTypeError, match=r"changes its shape from \(2,\) to \(4,\)"):
        jaxify([x], grow.bind(np.array(True), [x])[0])(jnp.ones(2))
