"""NaN and infinity end where a step forgets the state that has them, as in the steps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax import jaxify, scan
from loopax.extensions.parallel.loops.recurrence import affine_recurrence
from tests.extensions.parallel.loops.test_recurrence import one_by_one, some
from tests.support.compare import assert_trees_close, primitives

N = 40
x, restarts = pt.dvector("x"), pt.dvector("restarts")
number, vector = pt.dscalar("number"), pt.dvector("vector")
ROWS = pt.stack([x, restarts], axis=1)
DENSE = pt.constant(np.array([[0.5, 0.2, 0.1], [0.1, 0.6, 0.1], [0.2, 0.3, 0.4]]))
GAPS = pt.constant(np.array([[0.5, 0.2, 0.0], [0.1, 0.6, 0.1], [0.0, 0.3, 0.4]]))


def window(c, row):
    return pt.concatenate([row[None], c[:-1]]), c.sum()


def second_order(c, row):
    return (0.3 * c[0] + 0.2 * c[1] + row, c[0]), c[1]


def previous(c, row):
    return (row, c[0] * 0.5), c[0] + c[1]


def restarted(step):
    """A step that begins again with 0 where the row says so."""
    return lambda c, row: (step(pt.switch(row[1] > 0, 0.0, c), row[0]),) * 2


def branches(c, row):
    new = loopax.cond(
        row[1] > 0, lambda c, x: x + 0.0 * c.size, lambda c, x: 0.5 * c + x, c, row[0]
    )
    return new, new


def without_one(c, row):
    """The matrix times a vector of which the row forgets one entry."""
    rest = pt.switch(pt.eq(pt.arange(3), row[1]), 0.0, c)
    return (DENSE @ rest + row[0],) * 2


def in_logs(c, row):
    before = pt.logaddexp(pt.switch(row[1] > 0, -np.inf, c), row[0])
    return (pt.logsumexp(pt.log(DENSE) + before[None], axis=1),) * 2


def least(c, row):
    return (pt.minimum(pt.switch(row[1] > 0, np.inf, c), row[0]),) * 2


def greatest(c, row):
    return (pt.maximum(pt.switch(row[1] > 0, -np.inf, c), row[0]),) * 2


def fill(c, row):
    return (pt.switch(pt.isnan(row), c, row),) * 2


# name: (step, start, rows, what the remark says of it)
LOOPS = {
    "a restart": (restarted(lambda c, v: 0.5 * c + v), number, ROWS, "1 x 1"),
    "a restart of several": (restarted(lambda c, v: 0.5 * c + v), vector, ROWS, "1 x 1 for each"),
    "a restart before a matrix": (restarted(lambda c, v: DENSE @ c + v), vector, ROWS, "3 x 3"),
    "branches": (branches, number, ROWS, "1 x 1"),
    "one entry forgotten": (without_one, vector, ROWS, "3 x 3"),
    "missing rows filled": (fill, number, x, "1 x 1"),
    "a window": (window, vector, x, "3 x 3"),
    "two lags": (second_order, (number, number), x, "2 x 2"),
    "states that are rows": (previous, (number, number), x, "known from its rows"),
    "a minimum": (least, number, ROWS, "linear in minima"),
    "a maximum": (greatest, number, ROWS, "linear in maxima"),
    "logsumexp": (in_logs, vector, ROWS, "linear in logarithms"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("start", [0.5, np.nan, np.inf])
@pytest.mark.parametrize("name", LOOPS)
def test_values_and_derivatives_are_those_of_the_steps_one_by_one(name, start, reverse):
    step, begin, rows, words = LOOPS[name]
    inputs = [x, restarts, number, vector]
    trace = scan(step, begin, rows, reverse=reverse)[1]
    parallel, plain = (jaxify(inputs, trace, loops="xla", parallel=p) for p in (True, False))

    rng = np.random.default_rng(0)
    row = rng.uniform(0.3, 1.0, N)
    row[4], row[20] = np.nan, np.inf
    begins = (np.arange(N) % 7 == 5).astype(float)
    args = row, np.array(start), np.array([start, 1.0, 2.0])
    tangents = rng.normal(size=N), np.ones(()), np.ones(3)

    def results(f):
        def run(row, *states):
            return f(row, begins, *states)

        def loss(*args):  # after a restart, so that it is finite where the loop forgets
            return (run(*args)[12:16] ** 2).sum()

        slope = jax.grad(loss, (0, 1, 2))
        return jax.jit(
            lambda *args: (
                run(*args),
                jax.jvp(run, args, tangents)[1],
                slope(*args),
                jax.jvp(lambda v: slope(args[0], v, args[2])[0], args[1:2], tangents[1:2])[1],
                jax.vmap(run, in_axes=(0, None, None))(jnp.stack([args[0], row[::-1]]), *args[1:]),
            )
        )(*args)

    expected = results(plain)
    if "restart" in name or "branches" in name:
        assert np.isfinite(expected[0][12:16]).all()
    assert_trees_close(results(parallel), expected, rtol=1e-9, atol=1e-11)
    assert any(words in remark for remark in parallel.remarks)


@pytest.mark.parametrize("matrices", [1, None])
def test_entries_that_are_not_read(matrices):
    a, b, start = some(70, 3, 2, matrices)
    reads = np.random.default_rng(1).random(a.shape) < 0.6
    b[10, 1], start[0] = np.nan, np.inf
    args = np.where(reads, a, 0), b, start, reads
    for reverse in (False, True):
        actual, expected = (
            jax.jit(f, static_argnums=4)(*args, reverse) for f in (affine_recurrence, one_by_one)
        )
        finite = np.isfinite(expected)
        assert finite.any()
        np.testing.assert_array_equal(np.isfinite(actual), finite)
        np.testing.assert_allclose(actual[finite], expected[finite], rtol=1e-9)


@pytest.mark.parametrize("name", ["dense", "zeros", "number", "restart"])
def test_a_step_that_reads_all_of_its_states_selects_none(name):
    step = {
        "dense": lambda c, v: DENSE @ c + v,
        "zeros": lambda c, v: GAPS @ c + v,  # it reads these entries: 0 times NaN is NaN
        "number": lambda c, v: 0.5 * c + v,
        "restart": lambda c, v: pt.switch(v > 0, 0.0, DENSE @ c),
    }[name]
    f = jaxify([x, vector], scan(lambda c, v: (step(c, v),) * 2, vector, x)[1], parallel=True)
    operations = primitives(jax.make_jaxpr(f)(np.linspace(0.0, 1.0, N), np.ones(3)))
    assert (operations["reduce_or"] > 0) == (name == "restart")
