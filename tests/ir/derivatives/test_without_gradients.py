"""What has no gradient, in loops and branches: integers, what is not connected, what nobody knows."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import (
    DisconnectedInputError,
    NullTypeGradError,
    disconnected_type,
    grad_undefined,
    pushforward,
)
from pytensor.graph.null_type import NullType

from loopax import cond, jaxify, scan, vmap, while_loop
from tests.support.assorted_loops import PLAIN, X, a, s, x
from tests.support.ops import SameType


def value(outputs):
    f = pytensor.function([x, s, a], outputs, mode=PLAIN, on_unused_input="ignore")
    return f(X, 0.6, 0.7)


# -- what is not connected ---------------------------------------------------------------------------


def parted():
    """Two states that know nothing of each other, a count, and a trace of rows only."""

    def step(c, r):
        p, q, n = c
        return (p * a, q + r, n + 1), (2 * r, n * p)

    return scan(step, (s, s, 0), x)


def test_connection_pattern():
    (p, *_), _ = parted()
    # of p, q, n, the rows twice, n * p; the inputs are n_steps, x, s, s, 0, a
    assert p.owner.op.connection_pattern(p.owner) == [
        [False] * 5,
        [False, True, False, True, False],
        [True, False, False, False, True],
        [False, True, False, False, False],
        [False, False, True, False, True],
        [True, False, False, False, True],
    ]


def test_connected_in_more_than_one_step():
    """A row reaches the last state through all others; how it ended follows from nothing."""

    def step(c, r):
        p, q, t = c
        return (r, p, q), None, t > 100

    (p, q, t), _, stopped = scan(step, (s, s, s), x)
    nothing = [False] * 5
    assert p.owner.op.connection_pattern(p.owner) == [
        nothing,
        [True, True, True, False, False],
        [True, True, True, False, False],
        [False, True, True, False, False],
        [False, False, True, False, False],
    ]
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(stopped.astype("float64"), s)


@pytest.mark.parametrize(
    ("of", "wrt"),
    [
        (lambda finals, ys: finals[0], x),
        (lambda finals, ys: finals[1], a),
        (lambda finals, ys: ys[0].sum(), a),
        (lambda finals, ys: ys[0].sum(), s),
        (lambda finals, ys: finals[2].astype("float64"), a),
    ],
)
def test_disconnected_inputs(of, wrt):
    cost = of(*parted())
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(cost, wrt)
    actual = pytensor.grad(cost, wrt, disconnected_inputs="ignore")
    np.testing.assert_array_equal(value(actual), np.zeros(np.shape(X) if wrt is x else ()))


def test_a_number_of_steps_is_disconnected():
    n = pt.lscalar("n")
    final, _ = scan(lambda c, _: (a * c, None), s, length=n)
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(final, n)
    f = pytensor.function([n, s, a], pytensor.grad(final, [s, a]), mode=PLAIN)
    np.testing.assert_allclose(f(3, 2.0, 0.5), [0.125, 1.5])
    np.testing.assert_allclose(f(0, 2.0, 0.5), [1.0, 0.0])


def test_a_branch_that_does_not_read_an_operand():
    y = cond(s > 0, lambda: s**2, lambda: a**3)
    assert y.owner.op.connection_pattern(y.owner) == [[False], [True], [True]]
    f = pytensor.function([s, a], pytensor.grad(y, [s, a]), mode=PLAIN)
    np.testing.assert_array_equal(f(3.0, 2.0), [6.0, 0.0])
    np.testing.assert_array_equal(f(-3.0, 2.0), [0.0, 12.0])
    with pytest.raises(DisconnectedInputError):
        flag = pt.scalar("flag")
        pytensor.grad(cond(flag > 0, lambda: s, lambda: a), flag)


# -- integers ----------------------------------------------------------------------------------------


def test_integer_states_pass_nothing_on():
    """What a float was rounded to is connected, with a gradient that is zero."""

    def step(c, r):
        n, z = c
        return (n + (z > 0).astype("int64"), z + r), n * r

    (n, z), ys = scan(step, (0, s), x)
    for cost, expected in (
        (n.astype("float64"), [0.0, np.zeros(4)]),
        (n * z, [4.0, np.full(4, 4.0)]),
        (ys.sum(), [0.0, [0.0, 1.0, 2.0, 3.0]]),
    ):
        for actual, e in zip(value(pytensor.grad(cost, [s, x])), expected, strict=True):
            np.testing.assert_array_equal(actual, e)


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool"])
def test_integer_sequences_and_constants(dtype):
    rows, k = pt.vector("rows", dtype=dtype), pt.scalar("k", dtype=dtype)
    final, ys = scan(lambda c, r: (c * r + k, c * a), s, rows)
    by_s, by_a, by_rows, by_k = pytensor.grad(final + ys.sum(), [s, a, rows, k])
    values = np.array([1, 1, 0], dtype), np.array(1, dtype), 0.6, 0.7
    f = pytensor.function([rows, k, s, a], [by_s, by_a, by_rows, by_k], mode=PLAIN)
    actual = f(*values)
    np.testing.assert_allclose(actual[0], 0.7 * 3, rtol=1e-12)
    np.testing.assert_allclose(actual[1], 0.6 + 1.6 + 2.6, rtol=1e-12)
    np.testing.assert_array_equal(actual[2], np.zeros(3))
    np.testing.assert_array_equal(actual[3], 0.0)
    g = jax.grad(jaxify([rows, k, s, a], final + ys.sum()), (2, 3))(*values)
    np.testing.assert_allclose(actual[:2], g, rtol=1e-12)


# -- what nobody knows -------------------------------------------------------------------------------


class Thirds(SameType):
    """Rounds to thirds, and does not know its derivative."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.asarray(np.round(3 * inputs[0]) / 3)

    def pullback(self, inputs, outputs, cotangents):
        return [grad_undefined(self, 0, inputs[0], "thirds")]


thirds = Thirds()


def unknown(cost, *wrt):
    """Which of these inputs have a gradient that nobody knows; each alone raises."""
    together = pytensor.grad(cost, list(wrt), null_gradients="return")
    actual = [isinstance(g.type, NullType) for g in together]
    for w, is_unknown in zip(wrt, actual, strict=True):
        if is_unknown:
            with pytest.raises(NullTypeGradError, match="thirds"):
                pytensor.grad(cost, w)
        else:
            pytensor.grad(cost, w)
    return actual


OPTIONS = [{}, {"reverse": True}, {"checkpoint": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_where_it_is_not_read_it_does_not_matter(options):
    final, ys = scan(lambda c, r: (a * c + r, thirds(c)), s, x, **options)
    expected, _ = scan(lambda c, r: (a * c + r, None), s, x, **options)
    for actual, e in zip(
        value(pytensor.grad(final, [s, x, a])),
        value(pytensor.grad(expected, [s, x, a])),
        strict=True,
    ):
        np.testing.assert_array_equal(actual, e)
    assert unknown(final + ys.sum(), s, x, a) == [True, True, True]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_only_what_goes_through_it_is_unknown(options):
    by_row, _ = scan(lambda c, r: (a * c + thirds(r), None), s, x, **options)
    assert unknown(by_row, s, x, a) == [False, True, False]
    by_const, _ = scan(lambda c, r: (thirds(a) * c + r, None), s, x, **options)
    assert unknown(by_const, s, x, a) == [False, False, True]


def test_a_state_that_is_lost_takes_along_what_reads_it_and_nothing_else():
    b = pt.dscalar("b")

    def step(c, r):
        p, q = c
        return (thirds(p) + r, a * q + p), (b * p, q)

    (p, q), (ys, _) = scan(step, (s, s), x)
    # p is known no further back than one step; q reads it.
    assert unknown(q, s, x, a) == [True, True, False]
    assert unknown(p, s, x) == [True, True]
    # What only multiplies it is concerned with its values.
    assert unknown(ys.sum(), s, x, b) == [True, True, False]
    f = pytensor.function([x, s, a, b], pytensor.grad(q, a), mode=PLAIN, on_unused_input="ignore")

    def by_hand(a):
        p, q = 0.6, 0.6
        for r in X:
            p, q = np.round(3 * p) / 3 + r, a * q + p
        return q

    slope = (by_hand(0.7 + 1e-5) - by_hand(0.7 - 1e-5)) / 2e-5
    np.testing.assert_allclose(f(X, 0.6, 0.7, 0.0), slope, rtol=1e-8)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_unknown_behind_the_loop(options):
    (p, q), ys = scan(lambda c, r: ((c[0] * r, c[1] * r), c[1]), (s, a), x, **options)
    assert unknown(thirds(p) + q, s, a, x) == [True, False, True]
    assert unknown(thirds(p) + ys.sum(), s, a, x) == [True, False, True]


def test_unknown_in_and_behind_a_branch():
    y = cond(s > 0, lambda: a * s, lambda: thirds(s))
    assert unknown(y, s, a) == [True, False]
    p, q = cond(s > 0, lambda: (a * 2, s**2), lambda: (a, s))
    assert unknown(thirds(p) + q, s, a) == [False, True]


class Opaque(Thirds):
    """Has no derivative at all."""

    def pullback(self, inputs, outputs, cotangents):
        raise NotImplementedError("opaque")


def test_an_op_without_a_derivative_raises_where_it_is_read():
    final, ys = scan(lambda c, r: (a * c + r, Opaque()(c)), s, x)
    assert len(value(pytensor.grad(final, [s, x, a]))) == 3
    with pytest.raises(NotImplementedError, match="opaque"):
        pytensor.grad(ys.sum(), s)


# -- loops without a bound ---------------------------------------------------------------------------


def growing(start, **options):
    return while_loop(lambda c: c < 10, lambda c: c * (1 + a), start, **options)


def grown_in_a_loop():
    """Whether there is a first step follows from what is outside of the loop around it."""
    return scan(
        lambda c, r: (c + while_loop(lambda z: z < 9, lambda z: z * 3 + r**2, s), None), 0.0, x
    )[0]


@pytest.mark.parametrize(
    "loop",
    [
        lambda: growing(s),
        lambda: growing(s, checkpoint="sqrt"),
        lambda: vmap(growing)(x + 1).sum(),
        lambda: scan(lambda c, r: (c + growing(c + 1), None), s, x)[0],
    ],
    ids=["alone", "checkpoint", "batched", "in a loop"],
)
def test_reverse_mode_needs_a_bound(loop):
    with pytest.raises(NotImplementedError, match=r"(?s)no bound.*max_steps=1000.*pushforward"):
        pytensor.grad(loop(), a)


def test_reverse_mode_needs_a_bound_that_is_known_in_the_step():
    """Whether there is a first step is found in the step of the loop around it, and so is the bound."""
    with pytest.raises(NotImplementedError, match=r"(?s)no bound.*max_steps=1000.*pushforward"):
        pytensor.grad(grown_in_a_loop(), s)


def test_forward_mode_needs_none():
    final = growing(s)
    one, nothing = pt.ones(()), disconnected_type()
    for tangents, expected in (([one, one * 0], 1.7**6), ([one * 0, one], 0.6 * 6 * 1.7**5)):
        actual = pushforward(final, [s, a], tangents, use_op_pushforward=True)
        np.testing.assert_allclose(value(actual), expected, rtol=1e-12)
    again = pushforward(actual, [s], [one], use_op_pushforward=True)
    np.testing.assert_allclose(value(again), 6 * 1.7**5, rtol=1e-12)
    assert isinstance(
        final.owner.op.pushforward(final.owner.inputs, [final], [nothing] * 3)[0].type,
        type(nothing.type),
    )


def test_a_number_of_steps_that_an_unbounded_loop_found_is_a_bound():
    n = while_loop(lambda k: k * k < 10, lambda k: k + 1, 0)
    final, _, _ = scan(lambda c, _: (c * a, None, c > 100), s, length=n)
    actual = value(pytensor.grad(final, [s, a]))
    np.testing.assert_allclose(actual, [0.7**4, 4 * 0.6 * 0.7**3], rtol=1e-12)


def test_a_bound_may_be_a_variable():
    n = pt.lscalar("n")
    final = growing(s, max_steps=n)
    outs = [final, pytensor.grad(final, a)]
    for f in (pytensor.function([s, a, n], outs, mode=PLAIN), jaxify([s, a, n], outs)):
        np.testing.assert_allclose(f(0.6, 0.7, 20), [0.6 * 1.7**6, 0.6 * 6 * 1.7**5], rtol=1e-12)
        np.testing.assert_allclose(f(0.6, 0.7, 2), [0.6 * 1.7**2, 0.6 * 2 * 1.7], rtol=1e-12)
        np.testing.assert_allclose(f(11.0, 0.7, 20), [11.0, 0.0])
