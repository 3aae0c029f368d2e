"""What can be done with a trace whose length is only known when the program runs.

The rules of ops on a `PaddedArray`, each in a small program, at several lengths. The values are PyTensor's.
The derivatives are those of the same program on an array of that length, made by a Python loop: no masks.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from pytensor.scan.utils import until as stop_if

import loopax
from loopax import DynamicShapeError, jaxify, scan
from loopax.jax_backend.values.padded_array import PaddedArray
from tests.support.compare import FAST_COMPILE
from tests.support.random_loops import RANDOM

pytestmark = pytest.mark.one_stack

X, LIMIT = pt.dvector("x"), pt.dscalar("limit")
XS = np.array([0.3, 1.2, 0.7, 2.0, 0.1, 1.5])
LENGTHS = {2.5: 4, 1e9: 6, -1.0: 1}  # the number of rows for each limit
LIMITS = tuple(LENGTHS)


def until(row):
    def step(s, x):
        s = 0.9 * s + x
        return s, row(s, x), s > LIMIT

    return scan(step, pt.constant(0.5), X)[1]


def by_hand(row, x, n):
    s, rows = 0.5, []
    for k in range(n):
        s = 0.9 * s + x[k]
        rows.append(row(s, x[k]))
    return jnp.stack(rows)


# Rows of rank 0 and 1, for PyTensor and for JAX.
ROWS = {
    1: (lambda s, x: pt.sin(s) + 2, lambda s, x: jnp.sin(s) + 2),
    2: (
        lambda s, x: pt.sin(s + pt.arange(3.0) * x) + 2,
        lambda s, x: jnp.sin(s + jnp.arange(3.0) * x) + 2,
    ),
}

VECTOR = {
    "sum": lambda t, x: t.sum(),
    "mean": lambda t, x: t.mean(),
    "max": lambda t, x: t.max(),
    "min": lambda t, x: t.min(),
    "prod": lambda t, x: t.prod(),
    "any": lambda t, x: (t > 2.5).any(),
    "all": lambda t, x: (t > 1).all(),
    "count": lambda t, x: (t > 2).sum(),
    "standardised": lambda t, x: (t - t.mean()) / (1 + t.var()),
    "logsumexp": lambda t, x: pt.logsumexp(t),
    "softmax": lambda t, x: pt.special.softmax(t),
    "log softmax": lambda t, x: pt.special.log_softmax(t),
    "cumsum": lambda t, x: pt.cumsum(t),
    "cumprod": lambda t, x: pt.cumprod(t),
    "argmax": lambda t, x: pt.argmax(t),
    "argmin": lambda t, x: pt.argmin(t),
    "elementwise": lambda t, x: pt.tanh(t * 2 + 1) / (1 + pt.exp(-t)),
    "log": lambda t, x: pt.log(t).sum(),
    "a log that is not taken": lambda t, x: pt.switch(t > 2.2, pt.log(t - 2.2), 0.0).sum(),
    "an integer": lambda t, x: pt.cast(t, "int32"),
    "first": lambda t, x: t[0],
    "last": lambda t, x: t[-1],
    "from": lambda t, x: t[1:],
    "to": lambda t, x: t[:-1],
    "two": lambda t, x: t[:2],
    "last two": lambda t, x: t[-2:],
    "every second": lambda t, x: t[::2],
    "backwards": lambda t, x: t[::-1],
    "backwards in twos": lambda t, x: t[-2::-2],
    "differences": lambda t, x: t[1:] - t[:-1],
    "as long": lambda t, x: x[: t.shape[0]] * t,
    "the rest": lambda t, x: x[t.shape[0] :],
    "the one at the end": lambda t, x: x[t.shape[0] - 1],
    "the middle": lambda t, x: t[t.shape[0] // 2],
    "half": lambda t, x: t[t.shape[0] // 2 :].mean(),
    "length": lambda t, x: t.shape[0],
    "dot": lambda t, x: t.dot(x[: t.shape[0]]),
    "columns": lambda t, x: pt.outer(x[:2], x)[:, : t.shape[0]] @ t,
    "outer": lambda t, x: pt.outer(t, x[:2]),
    "outer, turned": lambda t, x: pt.outer(x[:2], t),
    "sum over a new axis": lambda t, x: (t[:, None] * x[None, :2]).sum(0),
    "concatenated": lambda t, x: pt.concatenate([x[:1], t, x, t]),
    "twice": lambda t, x: pt.concatenate([t, t]) * x[0],
    "tiled": lambda t, x: pt.tile(t, 3),
    "repeated": lambda t, x: pt.repeat(t, 2),
    "stacked": lambda t, x: pt.stack([t, t**2], axis=1),
    "stacked in front": lambda t, x: pt.stack([t, t**2]),
    "rolled": lambda t, x: pt.roll(t, 1),
    "tail of zeros": lambda t, x: pt.concatenate([t, pt.zeros(8 - t.shape[0])]),
    "zeros": lambda t, x: pt.zeros_like(t) + 1,
    "filled": lambda t, x: pt.full_like(t, 3.0) * x[1],
    "positions": lambda t, x: pt.arange(1, t.shape[0] + 1) * t / t.shape[0],
    "set one": lambda t, x: pt.set_subtensor(t[-1], x[1]),
    "set": lambda t, x: pt.set_subtensor(t[:1], x[:1]),
    "increment": lambda t, x: pt.inc_subtensor(t[1:], t[:-1]),
    "set in an array": lambda t, x: pt.set_subtensor(x[: t.shape[0]], t),
    "increment an array": lambda t, x: pt.inc_subtensor(x[: t.shape[0]], t**2),
    "at places": lambda t, x: t[np.array([[0, -1], [-1, 0]])],
    "at the greatest": lambda t, x: t[pt.argmax(t)],
    "places of its length": lambda t, x: x[pt.arange(t.shape[0])] * t,
    "under a mask": lambda t, x: t[t > 2].sum(),
    "set under a mask": lambda t, x: pt.set_subtensor(t[t > 2], x[0]),
    "reshaped": lambda t, x: t.reshape((-1, 1)) * x[:2],
    "a matrix for each row": lambda t, x: pt.linalg.det(t[:, None, None] * pt.eye(2) + x[:2]),
    "loop": lambda t, x: scan(lambda c, r: (c * 0.5 + r, c * r), x[0], t, reverse=True)[1],
    "loop of its length": lambda t, x: scan(lambda c, _: (c / 2 + 1,) * 2, x[0], length=t.shape[0])[
        1
    ],
    "loop that stops": lambda t, x: scan(lambda c, r: (c + r, c, c > 4), x[0], t)[1].sum(),
    "loop that reads it": lambda t, x: loopax.fori_loop(0, 2, lambda i, c: c + t.sum() * c, x[0]),
    "map": lambda t, x: loopax.map(lambda r: pt.sin(r) * x[0], t),
    "reduce": lambda t, x: loopax.reduce(lambda c, r: pt.sin(c) + r, 0.0, t),
    "pytensor.scan": lambda t, x: pytensor.scan(
        lambda r, c: c * 0.5 + r, sequences=t, outputs_info=x[0], return_updates=False
    ),
    "branch": lambda t, x: loopax.cond(t.sum() > 5, lambda: t * 2, lambda: t * 3),
}
MATRIX = {
    "sum": lambda t, x: t.sum(),
    "column sums": lambda t, x: t.sum(0),
    "row means": lambda t, x: t.mean(1),
    "column maxima": lambda t, x: t.max(0),
    "row maxima": lambda t, x: t.max(1),
    "argmax": lambda t, x: t.argmax(),
    "argmax of columns": lambda t, x: t.argmax(0),
    "variances": lambda t, x: t.var(0),
    "logsumexp of rows": lambda t, x: pt.logsumexp(t, axis=1),
    "softmax of columns": lambda t, x: pt.special.softmax(t, axis=0),
    "softmax of all": lambda t, x: pt.special.softmax(t, axis=None),
    "cumsum": lambda t, x: pt.cumsum(t, 0),
    "cumsum in rows": lambda t, x: pt.cumsum(t, 1),
    "last row": lambda t, x: t[-1],
    "last entry": lambda t, x: t[-1, 1],
    "column": lambda t, x: t[:, 0],
    "block": lambda t, x: t[1:, ::-1],
    "transposed": lambda t, x: t.T[1:],
    "end of the transposed": lambda t, x: t.T[:, -1],
    "times a vector": lambda t, x: t @ x[:3],
    "times a matrix": lambda t, x: t @ pt.outer(x[:3], x[:2]),
    "Gram": lambda t, x: t.T @ t,
    "vector times it": lambda t, x: x[: t.shape[0]] @ t,
    "centred": lambda t, x: t - t.mean(0),
    "rows appended": lambda t, x: pt.concatenate([t, pt.ones((2, 3)) * x[0]]),
    "columns appended": lambda t, x: pt.concatenate([t, pt.ones((t.shape[0], 1))], axis=1),
    "set a column": lambda t, x: pt.set_subtensor(t[:, 0], t[:, 1]),
    "increment an entry": lambda t, x: pt.inc_subtensor(t[-1, 1], x[0]),
    "rows at places": lambda t, x: t[np.array([0, -1])],
    "columns at places": lambda t, x: t[:, np.array([0, 2])],
    "entries at pairs": lambda t, x: t[np.array([0, -1]), np.array([1, 2])],
    "an entry of each row": lambda t, x: t[pt.arange(t.shape[0]), t.argmax(1)],
    "twice": lambda t, x: pt.concatenate([t, t]) * x[0],
    "flat": lambda t, x: t.flatten(),
    "reshaped": lambda t, x: t.reshape((t.shape[0], 3, 1)),
    "shape": lambda t, x: t.shape,
    "loop": lambda t, x: scan(lambda c, r: (c * 0.5 + r, c * 2), x[:3], t)[1],
    "map": lambda t, x: loopax.map(lambda r: r.max(), t),
    "loop over columns": lambda t, x: scan(lambda c, r: (c * 0.5 + r, c * r), x[0] * t[:, 0], t.T)[
        1
    ],
    "its last state": lambda t, x: scan(lambda c, r: (c * 0.5 + r, None), x[0] * t[:, 0], t.T)[0],
    "sums of columns by a loop": lambda t, x: loopax.map(lambda r: pt.sin(r * x[0]).sum(), t.T),
    "loop over some columns": lambda t, x: scan(
        lambda c, r: (c + r, c[-1], c[0] > 4), x[1] * t[:, 0], t.T
    )[1].sum(),
    "map over columns": lambda t, x: loopax.map(lambda r: r[::-1] * x[0], t.T),
    "cumulated in rows, by PyTensor's gradient": lambda t, x: pytensor.grad(
        pt.sin(pt.cumprod(t, 1)).sum(), t
    ),
}
TABLES = {1: VECTOR, 2: MATRIX}
NAMES = [(rank, name) for rank, table in TABLES.items() for name in table]


@cache
def programs(rank):
    """All entries of a table as one program of (x, limit); which of them have derivatives."""
    t = until(ROWS[rank][0])
    outs = {name: f(t, X) for name, f in TABLES[rank].items()}
    floats = tuple(name for name, out in outs.items() if out.type.dtype == "float64")
    return outs, floats, t


def names_of(drawn, rank=1):
    return tuple(parameters["name"] for parameters in drawn if parameters.get("rank", 1) == rank)


@cache
def results(rank, names):
    """Values of PyTensor and of JAX, which traces all entries and compiles those of ``names``."""
    outs, _, t = programs(rank)
    outputs = [*(outs[name] for name in names), t.shape[0]]
    run = pytensor.function([X, LIMIT], outputs, mode=FAST_COMPILE)
    f = jaxify([X, LIMIT], outs)
    jitted = jax.jit(lambda *args: {name: f(*args)[name] for name in names})
    actual = {}
    for limit in LIMITS:
        *values, n = [np.array(v) for v in run(XS, limit)]
        actual[limit] = int(n), dict(zip(names, values, strict=True)), jitted(XS, limit)
    return actual


@pytest.mark.sampled(43)
@pytest.mark.parametrize(("rank", "name"), NAMES)
def test_values(rank, name, drawn):
    for limit, (n, expected, actual) in results(rank, names_of(drawn, rank)).items():
        assert n == LENGTHS[limit]
        a, b = np.asarray(actual[name]), expected[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_without_jit():
    """There the number of rows is known to whoever asks, and the room for them is still there."""
    outs, _, _ = programs(2)
    f = jaxify([X, LIMIT], outs, jit=False)
    _, expected, _ = results(2, tuple(outs))[LIMITS[0]]
    for name, actual in f(XS, LIMITS[0]).items():
        np.testing.assert_allclose(actual, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


def totals(actual, names):
    """One number for each entry: of a trace the rows that count."""

    def total(x):
        return jnp.sum(jnp.sin(x.masked(0) if isinstance(x, PaddedArray) else x))

    return {name: total(actual[name]) for name in names}


# In `make test`: reductions, reads of either end, writes, lengths, loops; the others are their kin.
FEW = (
    *("sum", "max", "prod", "standardised", "softmax", "cumsum", "last", "from", "backwards"),
    *("the middle", "columns", "concatenated", "tail of zeros", "set", "increment an array"),
    *("at the greatest", "under a mask", "loop", "loop that stops", "branch"),
)


@cache
def slopes(rank, names, traced=()):
    """The derivative of each entry, a row for each limit, and that of the same program without masks.

    All of ``traced`` are part of the program, which has ``names`` compiled.
    """
    rows = pt.tensor("rows", dtype="float64", shape=(None,) * rank)
    t = until(ROWS[rank][0])
    f = jaxify([X, LIMIT], {name: TABLES[rank][name](t, X) for name in traced or names})
    plain = jaxify([rows, X], {name: TABLES[rank][name](rows, X) for name in names})

    def of(x, limit):
        return jax.jacrev(lambda x: totals(f(x, limit), names))(x)

    def reference(x, n):
        def of(x):
            actual = plain(by_hand(ROWS[rank][1], x, n), x)
            return totals(actual, names)

        return jax.jit(jax.jacrev(of))(x)

    xs = jnp.asarray(XS)
    batch = jax.jit(jax.vmap(of, in_axes=(None, 0)))(xs, jnp.asarray(LIMITS))
    return [reference(xs, n) for n in LENGTHS.values()], batch


def assert_slopes(name, reference, batch):
    for k, b in enumerate(reference):
        np.testing.assert_allclose(batch[name][k], b[name], rtol=1e-8, atol=1e-10)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", FEW)
def test_derivatives(name, drawn):
    assert_slopes(name, *slopes(1, names_of(drawn), FEW))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "name"), [(rank, name) for rank in TABLES for name in programs(rank)[1]]
)
def test_all_derivatives(rank, name):
    assert_slopes(name, *slopes(rank, programs(rank)[1]))


# PyTensor 3.3 asserts that a length is 1 or not, which cannot raise while a program runs.
@pytest.mark.filterwarnings("ignore:The assertion:UserWarning")
@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2])
def test_pytensors_gradient_transpiled(rank):
    """Of all entries of a table in one cost: what PyTensor's own gradients are made of has rules too."""
    outs, floats, _ = programs(rank)
    total = sum(pt.sin(outs[name]).sum() for name in floats)
    f = jax.jit(jaxify([X, LIMIT], pytensor.grad(total, X)))
    reference, _ = slopes(rank, floats)
    for limit, expected in zip(LIMITS, reference, strict=True):
        np.testing.assert_allclose(f(XS, limit), sum(expected.values()), rtol=1e-8, atol=1e-9)


def test_the_gradient_of_a_trace_that_is_filled_up():
    """Of an array of known length, which is split where the loop stopped."""
    t = until(ROWS[1][0])
    filled = pt.concatenate([t, pt.zeros(8 - t.shape[0])])
    f = jax.jit(jaxify([X, LIMIT], pytensor.grad(pt.sin(filled).sum(), X)))

    def hand(x):
        return jnp.sin(by_hand(ROWS[1][1], x, 4)).sum()

    np.testing.assert_allclose(f(XS, LIMITS[0]), jax.grad(hand)(XS), rtol=1e-9)


# -- random programs --------------------------------------------------------------------------------

STEPS = {
    "sin": lambda t, x: pt.sin(t) + 1.5,
    "exp": lambda t, x: pt.exp(-t),
    "to": lambda t, x: t[:-1],
    "from": lambda t, x: t[1:],
    "back": lambda t, x: t[::-1],
    "every": lambda t, x: t[::2],
    "cumsum": lambda t, x: pt.cumsum(t),
    "softmax": lambda t, x: pt.special.softmax(t),
    "behind": lambda t, x: pt.concatenate([x, t]),
    "before": lambda t, x: pt.concatenate([t, 0.5 * t[:1], x]),
    "positions": lambda t, x: t * pt.arange(t.shape[0]),
    "zeros": lambda t, x: pt.inc_subtensor(pt.zeros_like(t)[1:], t[:-1]),
    "set": lambda t, x: pt.set_subtensor(t[-1], x[0]),
    "ends": lambda t, x: t * t[-1] + t[0],
    "centred": lambda t, x: t - t.mean(),
    "loop": lambda t, x: scan(lambda c, r: (pt.tanh(c) + r,) * 2, x[1], t)[1],
    "backward loop": lambda t, x: scan(lambda c, r: (pt.tanh(c) * r,) * 2, x[1], t, reverse=True)[
        1
    ],
    "stopping loop": lambda t, x: scan(lambda c, r: (c + r**2, c * r, c > 3), x[0], t)[1],
    "map": lambda t, x: loopax.map(lambda r: r * pt.cos(r + x[0]), t),
    "row sums": lambda t, x: (t[:, None] * x[None, :3]).sum(1),
    "chosen": lambda t, x: t[t > t.mean() - 1e-3],
}
ENDS = {
    "sum": lambda t: t.sum(),
    "mean": lambda t: t.mean(),
    "max": lambda t: t.max(),
    "min": lambda t: t.min(),
    "prod": lambda t: t.prod(),
    "var": lambda t: t.var(),
    "logsumexp": lambda t: pt.logsumexp(t),
    "dot": lambda t: t.dot(t[::-1]),
    "last": lambda t: t[-1],
    "reduce": lambda t: loopax.reduce(lambda c, r: pt.sin(c) + r, 0.0, t),
}


def assert_program(steps, end):
    t = until(ROWS[1][0])
    for name in steps:
        t = STEPS[name](t, X)
    out = ENDS[end](t)
    by_rule = pytensor.grad(out, X)
    run = pytensor.function([X, LIMIT], [out, by_rule], mode=FAST_COMPILE)
    f = jaxify([X, LIMIT], out)
    one = jax.jit(lambda x, limit: (f(x, limit), jax.grad(f)(x, limit)))
    batch = jax.jit(jax.vmap(jax.value_and_grad(f), (None, 0)))(XS, jnp.array(LIMITS))
    transpiled = jax.jit(jaxify([X, LIMIT], by_rule))
    checked = 0
    for k, limit in enumerate(LIMITS):
        actual = one(XS, limit)
        try:
            value, slope = run(XS, limit)
        except (ValueError, IndexError):  # of no rows at all
            assert not np.isfinite(actual[0])
            continue
        if not np.isfinite(value):  # the mean of no rows
            continue
        checked += 1
        np.testing.assert_allclose(actual[0], value, rtol=1e-9, atol=1e-12)
        for g in (actual[1], batch[1][k], transpiled(XS, limit)):
            np.testing.assert_allclose(g, slope, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(batch[0][k], value, rtol=1e-9, atol=1e-12)
    assert checked >= 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_random_programs(number):
    @seed(number)
    @settings(RANDOM, max_examples=4)
    @given(
        st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3),
        st.sampled_from(sorted(ENDS)),
    )
    def check(steps, end):
        assert_program(steps, end)

    check()


# -- a trace as an output ---------------------------------------------------------------------------


def squares_until():
    limit = pt.dscalar("limit")
    return jaxify([X, limit], scan(lambda s, x: (s + x, s * x, s + x > limit), pt.zeros(()), X)[1])


def rows_until(x, limit):
    s, rows = 0.0, []
    for e in x:
        rows.append(s * e)
        s += e
        if s > limit:
            break
    return np.array(rows)


def test_it_is_an_output_that_numpy_trims():
    f = squares_until()
    for limit in (0.0, 2.0, 1e9):
        expected = rows_until(XS, limit)
        actual = jax.jit(f)(XS, limit)
        assert isinstance(actual, PaddedArray) and len(actual) == len(expected)
        np.testing.assert_allclose(np.asarray(actual), expected)
        np.testing.assert_allclose(actual.rows(), expected)
        assert actual.bound == len(XS)  # and behind the end the last row again
        np.testing.assert_allclose(actual.data[len(expected) :], expected[-1])
        trimmed = f(XS, limit)
        assert isinstance(trimmed, jax.Array)
        np.testing.assert_allclose(trimmed, expected)
    assert np.asarray(jax.jit(f)(XS, 2.0), dtype="float32").dtype == "float32"
    assert "length" in repr(jax.jit(f)(XS, 2.0))


def test_in_a_batch_each_member_has_a_length():
    f, limits = squares_until(), jnp.array([0.0, 2.0, 1e9])
    actual = jax.jit(jax.vmap(f, in_axes=(None, 0)))(XS, limits)
    assert actual.length.tolist() == [len(rows_until(XS, limit)) for limit in limits]
    for k, limit in enumerate(limits):
        np.testing.assert_allclose(np.asarray(actual.member(k)), rows_until(XS, limit))
    with pytest.raises(ValueError, match=r"a batch of 3 traces.*trace.member\(k\)"):
        np.asarray(actual)


def test_lax_scan_carries_and_stacks_traces():
    f, limits = squares_until(), jnp.array([0.0, 2.0])

    def step(trace, limit):
        return f(trace.data + 1, limit), trace

    start = jax.jit(f)(XS, 1e9)
    last, before = jax.jit(lambda start: jax.lax.scan(step, start, limits))(start)
    np.testing.assert_allclose(np.asarray(before.member(0)), rows_until(XS, 1e9))
    first = jax.jit(f)(start.data + 1, 0.0)
    np.testing.assert_allclose(np.asarray(before.member(1)), np.asarray(first))
    np.testing.assert_allclose(np.asarray(last), np.asarray(f(first.data + 1, 2.0)))


def test_a_trace_among_other_outputs_and_of_several_types():
    limit = pt.dscalar("limit")

    def step(s, x):
        row = {"flag": x > 1, "row": pt.stack([x, s]), "count": pt.cast(s, "int32")}
        return s + x, row, s + x > limit

    final, ys, stopped = scan(step, pt.zeros(()), X)
    f = jax.jit(jaxify([X, limit], {"final": final, "ys": ys, "stopped": stopped}))
    run = pytensor.function([X, limit], [ys[k] for k in sorted(ys)], mode=FAST_COMPILE)
    for top in (0.0, 2.0, 1e9):
        actual = f(XS, top)
        for k, expected in zip(sorted(ys), run(XS, top), strict=True):
            got = np.asarray(actual["ys"][k])
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected)
        assert bool(actual["stopped"]) == (top < 1e9)


def test_no_steps_no_rows():
    n, limit = pt.lscalar("n"), pt.dscalar("limit")
    final, ys, _ = scan(
        lambda s, _: (s + 1.5, pt.stack([s, s]), s > limit), X[0], length=pt.minimum(n, 4)
    )
    outs = [final, ys, ys.sum(), ys.shape[0], pt.concatenate([ys, 2 * ys])]
    f = jax.jit(jaxify([X, n, limit], outs))
    run = pytensor.function([X, n, limit], outs, mode=FAST_COMPILE)
    slope = jax.jit(jax.grad(lambda x, n: f(x, n, 1e9)[2] + f(x, n, 1e9)[0]))
    for steps, taken in ((0, 0), (2, 2), (9, 4)):
        for a, b in zip(f(XS, steps, 1e9), run(XS, steps, 1e9), strict=True):
            assert (np.asarray(a).shape, np.asarray(a).dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(np.asarray(a), b)
        np.testing.assert_allclose(slope(XS, steps), [1 + 2 * taken, 0, 0, 0, 0, 0])


# -- what cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda t: pt.outer(t, t),
        lambda t: pt.diag(t),
        lambda t: pt.linalg.det(t[:, None] * pt.ones((1, 3))),
    ],
    ids=["outer", "diag", "a matrix of its rows"],
)
def test_what_must_know_the_length_says_what_works(f):
    jf = jaxify([X, LIMIT], f(until(ROWS[1][0])))
    with pytest.raises(
        DynamicShapeError, match=r"how many rows there are.*a loopax.PaddedArray.*pt.where"
    ):
        jax.jit(jf)(XS, 2.0)


def test_lengths_that_differ_give_no_number():
    t = until(ROWS[1][0])
    f = jax.jit(jaxify([X, LIMIT], [t * t[1:], t.dot(t[::2]), t[4]]))
    assert all(np.isnan(np.asarray(x)).all() for x in f(XS, 2.5))


@pytest.mark.parametrize("write", [pt.set_subtensor, pt.inc_subtensor])
def test_a_trace_is_written_into_a_row_of_known_length(write):
    written = write(pt.ones((3, 4))[1], until(ROWS[1][0]))
    f = jax.jit(jaxify([X, LIMIT], written))
    expected = pytensor.function([X, LIMIT], written, mode=FAST_COMPILE)(XS, 2.5)
    np.testing.assert_allclose(f(XS, 2.5), expected)  # four rows
    assert np.isnan(np.asarray(f(XS, 1e9))).any()  # six


def test_one_row_is_not_broadcast_where_its_length_is_known_without_tracing():
    """A flag that no step changes, one operation after the other: there is one row, as the graph shows."""
    ended = pt.bscalar("ended")
    t = scan(lambda s, x: (s, s + x, pt.neq(ended, 0)), pt.constant(1.0), X)[1]
    f = jaxify([X, ended], t / t, jit=False)
    np.testing.assert_array_equal(np.asarray(f(XS, 1)), [1.0])
    np.testing.assert_array_equal(np.asarray(f(XS, 0)), np.ones(6))


def test_blocks_of_each_row():
    """A -1 beside the length of the trace itself is a number."""
    t = until(ROWS[1][0])
    blocks = (t[:, None] * X[None, :2]).reshape((t.shape[0], 2, -1))
    f = jax.jit(jaxify([X, LIMIT], blocks.sum(axis=(0, 2))))
    expected = pytensor.function([X, LIMIT], blocks.sum(axis=(0, 2)), mode="FAST_COMPILE")
    np.testing.assert_allclose(f(XS, 2.5), expected(XS, 2.5), rtol=1e-10)


def test_a_row_of_a_trace_is_an_index_while_a_loop_is_traced():
    """The interval of the index is that of the trace, which has values outside of the loop."""
    whole = pt.lvector("whole")
    kept = pytensor.scan(lambda u: (u + 0, stop_if(u > 2)), whole, return_updates=False)
    read = pytensor.scan(lambda u, x: x[-1 - u % 2], kept, non_sequences=X, return_updates=False)
    f = jaxify([whole, X], read, loops="xla", jit=False)
    np.testing.assert_array_equal(np.asarray(f(np.arange(5), XS)), XS[[-1, -2, -1, -2]])
