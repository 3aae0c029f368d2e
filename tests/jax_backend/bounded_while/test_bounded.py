"""Loops that stop early and have a bound, to any order: the engine, through programs.

The reference for derivatives is the same loop as a Python ``while`` of JAX operations, whose every step
is differentiated by JAX as it is taken; the reference for values is PyTensor.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scan.utils import until

from loopax import UnsupportedOpError, cond, fori_loop, jaxify, lag, scan, while_loop
from tests.support.compare import FAST_COMPILE
from tests.support.ops import SameType

X, A = pt.dscalar("x"), pt.dscalar("a")
pytestmark = pytest.mark.one_stack

XS = pt.dvector("xs")
ROWS = np.array([0.9, 0.3, -0.4, 0.7, 0.2, 0.5, -0.1])


def orders(f):
    """Derivatives up to the second of ``f``, from floats to a float, in forward and reverse mode."""

    def of(*xs):
        every = tuple(range(len(xs)))
        ones = tuple(jnp.ones_like(x) for x in xs)
        value, slopes = jax.value_and_grad(f, every)(*xs)
        return {
            "value": value,
            "grad": slopes,
            "jvp": jax.jvp(f, xs, ones)[1],
            "forward over reverse": jax.jacfwd(jax.grad(f, every), every)(*xs),
        }

    return of


def assert_close(actual, expected, rtol=1e-9, atol=1e-11):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def floats(*xs):
    return tuple(jnp.asarray(x, float) for x in xs)


def by_pytensor(inputs, outputs, *values):
    return pytensor.function(inputs, outputs, mode=FAST_COMPILE, on_unused_input="ignore")(*values)


# -- bounds -----------------------------------------------------------------------------------------


def walk(bound, x=X, a=A):
    """Goes up in unequal steps until past 10 a: what the condition reads is what the step reads."""

    def step(state):
        s, n = state
        return s + a * (1.5 + pt.cos(s)), n + 1

    return while_loop(lambda s: s[0] < 10 * a, step, (x, 0), max_steps=bound)


def walk_by_hand(bound, x, a):
    n = 0
    while n < bound and x < 10 * a:
        x, n = x + a * (1.5 + jnp.cos(x)), n + 1
    return x, n


# One level, two, three, four; what fits a level exactly, and one more.
@pytest.mark.slow
@pytest.mark.parametrize("bound", [1, 5, 32, 33, 2500, 200_000])
def test_every_bound_and_order(bound):
    outs = walk(bound)
    f = jaxify([X, A], outs)
    actual = jax.jit(orders(lambda x, a: f(x, a)[0]))
    counts = set()
    # Not one step, one, and as many as the bound allows or the condition.
    for point in ((20.0, 1.0), (9.9, 1.0), (0.3, 0.7), (-30.0, 0.8)):
        values = by_pytensor([X, A], list(outs), *point)
        n = f(*point)[1]
        assert n == values[1] == walk_by_hand(bound, *point)[1]
        counts.add(int(n))
        expected = orders(lambda x, a: walk_by_hand(bound, x, a)[0])(*floats(*point))
        assert_close(expected["value"], values[0])
        assert_close(actual(*floats(*point)), expected)
    assert {0, 1} < counts or bound == 1
    assert (max(counts) == bound) == (bound < 40)  # where nothing stops it


@pytest.mark.slow
def test_finite_differences_and_pytensor_grad():
    out = walk(100)[0] ** 2
    f = jaxify([X, A], out)
    point = floats(0.3, 0.7)
    slopes = jax.grad(f, (0, 1))(*point)
    h = 1e-6
    for k, slope in enumerate(slopes):
        up, down = list(point), list(point)
        up[k], down[k] = point[k] + h, point[k] - h
        np.testing.assert_allclose(slope, (f(*up) - f(*down)) / (2 * h), rtol=1e-7)
    by_rule = pytensor.grad(out, [X, A])
    assert_close(list(slopes), [jnp.asarray(g) for g in by_pytensor([X, A], by_rule, *point)])
    transpiled = jaxify([X, A], by_rule)
    assert_close(list(transpiled(*point)), list(slopes))
    # A derivative of the transpiled derivative is the second one.
    second = jax.jacfwd(lambda *xs: transpiled(*xs)[0], (0, 1))(*point)
    assert_close(second, jax.jacfwd(jax.grad(f), (0, 1))(*point))


@pytest.mark.slow
def test_reverse_over_reverse_and_a_third_derivative():
    f = jaxify([X, A], walk(70)[0])
    point = floats(4.0, 0.7)  # three steps

    def third(g):
        return jax.jacrev(jax.jacfwd(jax.grad(g)))(*point)

    twice = jax.jacrev(jax.grad(f))(*point)
    assert_close(twice, jax.jacfwd(jax.grad(f))(*point))
    assert_close(jax.jit(lambda: third(f))(), third(lambda x, a: walk_by_hand(70, x, a)[0]))


def test_a_bound_of_zero():
    f = jaxify([X, A], walk(0))
    assert [float(x) for x in f(0.3, 0.7)] == [0.3, 0]
    actual = jax.jit(orders(lambda x, a: f(x, a)[0] ** 2))(*floats(0.3, 0.7))
    assert_close(actual, orders(lambda x, a: x**2)(*floats(0.3, 0.7)))


def test_a_bound_that_is_an_input():
    """Of at most 50 steps: what an input asks for, within that."""
    n = pt.lscalar("n")
    (s, _), _, _ = scan(
        lambda c, _: ((c[0] + A * pt.cos(c[0]), c[1] + 1), None, c[0] > 2.0),
        (X, 0),
        length=pt.minimum(n, 50),
    )
    f = jaxify([X, A, n], s)
    slope = jax.jit(jax.grad(f, (0, 1)))
    by_rule = pytensor.grad(s, [X, A])
    for steps in (0, 1, 3, 60):
        expected = by_pytensor([X, A, n], by_rule, 0.3, 0.7, steps)
        assert_close(list(slope(0.3, 0.7, steps)), [jnp.asarray(g) for g in expected])


# -- what a loop can carry --------------------------------------------------------------------------


def mixed(reverse=False):
    """States of several types and ranks, a sequence, lags, and what is captured."""
    limit = pt.exp(A)

    def step(carry, row):
        total, vector, count, flag, past = carry
        back = past[0] - 0.3 * past[1]
        total = total + pt.where(flag, row * A, row**2) + 0.1 * back
        vector = pt.tanh(vector * total + pt.arange(3))
        stop = vector.sum() + total > limit
        return (total, vector, count + 1, row > 0.4, 0.5 * back + row), None, stop

    init = (X, pt.stack([X, A, X * A]), 0, np.array(True), lag(pt.stack([A, X, X]), [1, 3]))
    return scan(step, init, XS, reverse=reverse)


def mixed_by_hand(x, a, xs, reverse):
    total, vector, flag, past = x, jnp.stack([x, a, x * a]), True, [a, x, x]
    for row in xs[::-1] if reverse else xs:
        back = past[-1] - 0.3 * past[-3]
        total = total + (row * a if flag else row**2) + 0.1 * back
        vector = jnp.tanh(vector * total + jnp.arange(3))
        flag, past = bool(row > 0.4), [*past[1:], 0.5 * back + row]
        if vector.sum() + total > jnp.exp(a):
            break
    return total * vector[1] + past[-1]


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_states_of_several_types(reverse):
    (total, vector, count, flag, past), _, stopped = mixed(reverse)
    outs = [total * vector[1] + past[-1], count, flag, stopped]
    f = jaxify([X, A, XS], outs)
    actual = jax.jit(orders(lambda *xs: f(*xs)[0]))
    counts = set()
    for x, a in ((9.0, 0.1), (0.2, 9.0), (0.2, 1.0) if reverse else (-1.5, 0.6)):
        values = by_pytensor([X, A, XS], outs, x, a, ROWS)
        for got, expected in zip(f(x, a, ROWS), values, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)
        counts.add(int(values[1]))
        point = floats(x, a, ROWS)
        expected = orders(lambda *xs: mixed_by_hand(*xs, reverse))(*point)
        assert_close(actual(*point), expected)
    assert counts >= {1, len(ROWS)} and len(counts) == 3


@pytest.mark.slow
def test_a_generator_among_the_states():
    rng = pt.random.rng("rng")

    def step(carry, row):
        rng, s = carry
        rng, e = rng.normal(0.0, 1.0)
        s = s + A * pt.abs(e) + row
        return (rng, s), None, s > 2.0

    (after, s), _, _ = scan(step, (rng, X), XS)
    f = jaxify([rng, X, A, XS], [after, s])
    xs = np.full(20, 0.1)
    keys = jax.random.split(jax.random.key(1), 4)

    ends = jax.vmap(f, in_axes=(0, None, None, None))(keys, 0.3, 0.7, xs)
    slopes = jax.vmap(jax.grad(lambda *xs: f(*xs)[1], 2), in_axes=(0, None, None, None))(
        keys, 0.3, 0.7, xs
    )
    lengths = set()
    for k, key in enumerate(keys):
        draws = []
        for _ in range(20):
            # One step of the same program, so that the draws are the same.
            key, moved = f(key, 0.0, 1.0, np.zeros(1))
            draws.append(float(moved))
        path = 0.3 + np.cumsum(0.7 * np.array(draws) + 0.1)
        n = int(np.argmax(path > 2.0)) + 1
        lengths.add(n)
        np.testing.assert_allclose(ends[1][k], path[n - 1], rtol=1e-12)
        np.testing.assert_allclose(slopes[k], sum(draws[:n]), rtol=1e-12)
    assert len(lengths) > 1


@pytest.mark.slow
def test_mapped_outputs_count_to_the_stop():
    def step(s, row):
        s = 0.9 * s + row**2
        return s, pt.sin(s) * A, s > 1.0 + A

    final, ys, _ = scan(step, X, XS)
    out = final * (ys**2).sum() + ys[-1] + ys[0]
    f = jaxify([X, A, XS], out)

    def by_hand(s, a, xs):
        ys = []
        for row in xs:
            s = 0.9 * s + row**2
            ys.append(jnp.sin(s) * a)
            if s > 1.0 + a:
                break
        return s * sum(y**2 for y in ys) + ys[-1] + ys[0]

    actual = jax.jit(orders(f))
    for a in (0.2, 9.0, -5.0):
        point = floats(0.5, a, ROWS)
        assert_close(actual(*point), orders(by_hand)(*point))
        np.testing.assert_allclose(f(*point), by_pytensor([X, A, XS], out, *point), rtol=1e-12)


# -- loops in loops ---------------------------------------------------------------------------------


def up_to(limit, rate, s, bound=9):
    return while_loop(lambda s: s < limit, lambda s: s + rate * pt.cos(s) ** 2, s, max_steps=bound)


def up_to_by_hand(limit, rate, s, bound=9):
    n = 0
    while n < bound and s < limit:
        s, n = s + rate * jnp.cos(s) ** 2, n + 1
    return s


def _for_in_while():
    return while_loop(
        lambda s: s < 3.0,
        lambda s: fori_loop(0, 2, lambda i, s: s + A * pt.cos(s + i) ** 2, s),
        X,
        max_steps=40,
    )


def _for_in_while_by_hand(x, a, n=0):
    while n < 40 and x < 3.0:
        for i in range(2):
            x = x + a * jnp.cos(x + i) ** 2
        n += 1
    return x


def _while_in_for():
    return scan(lambda s, row: (up_to(row + A, 0.4 * A, s), s * row), X, pt.arange(3.0))


def _while_in_for_by_hand(x, a):
    for row in range(3):
        x = up_to_by_hand(row + a, 0.4 * a, x)
    return x


def _while_in_while():
    return while_loop(
        lambda s: s < 2.5, lambda s: pt.sin(A) + up_to(s + 0.5, A, s), X, max_steps=35
    )


def _while_in_while_by_hand(x, a):
    while x < 2.5:
        x = jnp.sin(a) + up_to_by_hand(x + 0.5, a, x)
    return x


def _in_a_branch():
    return cond(X < 1.0, lambda: up_to(2.0, A, X) * A, lambda: X * A)


def _in_a_call():
    s, a = pt.dscalar(), pt.dscalar()
    return OpFromGraph([s, a], [up_to(2.0, a, s)])(X * A, A)


NESTED = {
    "for in while": (_for_in_while, _for_in_while_by_hand),
    "while in for": (lambda: _while_in_for()[0], _while_in_for_by_hand),
    "while in while": (_while_in_while, _while_in_while_by_hand),
    "in a branch": (_in_a_branch, lambda x, a: up_to_by_hand(2.0, a, x) * a if x < 1.0 else x * a),
    "in a call": (_in_a_call, lambda x, a: up_to_by_hand(2.0, a, x * a)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NESTED)
def test_nested(name):
    build, by_hand = NESTED[name]
    out = build()
    f = jaxify([X, A], out)
    actual = jax.jit(orders(f))
    points = [(0.3, 0.7), (1.2, 0.4), (-0.4, 0.9)]
    for x, a in points:
        expected = orders(by_hand)(*floats(x, a))
        assert_close(actual(*floats(x, a)), expected)
        np.testing.assert_allclose(f(x, a), by_pytensor([X, A], out, x, a), rtol=1e-12)
        rules = by_pytensor([X, A], pytensor.grad(out, [X, A]), x, a)
        assert_close(list(expected["grad"]), [jnp.asarray(g) for g in rules])
    rows = [jnp.asarray(c) for c in zip(*points, strict=True)]
    batch = jax.jit(jax.vmap(jax.grad(f, (0, 1))))(*rows)
    alone = [jax.grad(by_hand, (0, 1))(*floats(*p)) for p in points]
    assert_close(batch, jax.tree.map(lambda *xs: jnp.stack(xs), *alone))


# -- batches ----------------------------------------------------------------------------------------


@cache
def batched_program():
    """Of an initial state, what is captured, and a sequence."""

    def step(s, row):
        s = pt.tanh(s) + A * row**2 + 0.3
        return s, s * row, s > 1.0 + 0.2 * A

    final, ys, _ = scan(step, X, XS)
    f = jaxify([X, A, XS], [final + ys.sum(), ys.shape[0]])
    return f, jax.jit(lambda *xs: f(*xs)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes", [(0, 0, 0), (None, 0, None), (0, None, None), (None, None, 0)], ids=str
)
def test_each_row_of_a_batch_stops_on_its_own(axes):
    f, length = batched_program()
    batch = [
        jnp.array([-0.9, 0.3, 5.0]),
        jnp.array([0.1, 0.9, 2.0]),
        jnp.stack([jnp.asarray(ROWS), 0.1 * ROWS, 3 * ROWS]),
    ]
    args = [x if axis == 0 else x[0] for x, axis in zip(batch, axes, strict=True)]
    rows = [
        [x[k] if axis == 0 else x for x, axis in zip(args, axes, strict=True)] for k in range(3)
    ]
    assert len({int(length(*row)) for row in rows}) > 1
    one = alone(axes)
    actual = jax.jit(jax.vmap(one, in_axes=axes))(*args)
    one = jax.jit(one)
    assert_close(actual, jax.tree.map(lambda *xs: jnp.stack(xs), *[one(*row) for row in rows]))


def alone(axes):
    f, _ = batched_program()
    return orders(lambda *xs: f(*xs)[0])


def test_a_batch_of_batches():
    f, _ = batched_program()
    slope = jax.grad(lambda *xs: f(*xs)[0], (0, 1, 2))
    xs, rates = jnp.array([-0.9, 0.3, 5.0]), jnp.array([0.1, 0.9])
    both = jax.vmap(jax.vmap(slope, in_axes=(0, None, None)), in_axes=(None, 0, None))
    actual, one = jax.jit(both)(xs, rates, ROWS), jax.jit(slope)
    for j, a in enumerate(rates):
        for k, x in enumerate(xs):
            assert_close(jax.tree.map(lambda g, j=j, k=k: g[j, k], actual), one(x, a, ROWS))


# -- what is not taken does not count ----------------------------------------------------------------


@pytest.mark.slow
def test_a_row_that_is_done_does_not_spoil_a_derivative():
    """Its last state is a pole of the step: 0 times what the step makes of it would be NaN."""

    def step(carry):
        s, total = carry
        return s - 1, total + A / s + pt.log(s)

    s, total = while_loop(lambda c: c[0] > 0, step, (X, X * 0), max_steps=40)
    f = jaxify([X, A], total)
    starts = jnp.array([1.0, 3.0, 6.0, 0.0])
    actual = jax.jit(jax.vmap(orders(f), in_axes=(0, None)))(starts, 0.7)
    for k, x in enumerate(starts):

        def by_hand(x, a, n=int(x)):
            return 0 * x + sum(a / (x - k) + jnp.log(x - k) for k in range(n))

        expected = orders(by_hand)(x, jnp.asarray(0.7))
        assert_close(jax.tree.map(lambda y, k=k: y[k], actual), expected)
        assert_close(jax.jit(orders(f))(x, jnp.asarray(0.7)), expected)


@pytest.mark.slow
def test_rows_behind_the_stop_do_not_spoil_a_derivative():
    final, ys, _ = scan(lambda s, row: (s + row, 1 / row, s + row > 1.0), X, XS)
    f = jaxify([X, XS], final * ys.sum())
    xs = jnp.array([0.5, 0.8, np.nan, 0.0, np.inf])
    actual = jax.jit(orders(f))(jnp.asarray(0.1), xs)
    expected = orders(f)(jnp.asarray(0.1), xs[:2])
    assert_close(actual["value"], expected["value"])
    np.testing.assert_allclose(actual["grad"][1], [*expected["grad"][1], 0, 0, 0], rtol=1e-12)
    second = np.zeros((5, 5))
    second[:2, :2] = expected["forward over reverse"][1][1]
    np.testing.assert_allclose(actual["forward over reverse"][1][1], second, rtol=1e-10)


# -- without a bound --------------------------------------------------------------------------------


def test_without_a_bound_forward_mode_works_and_reverse_mode_says_what_is_missing():
    out = walk(None)[0]
    f = jaxify([X, A], out)
    point = floats(0.3, 0.7)
    np.testing.assert_allclose(f(*point), by_pytensor([X, A], out, *point), rtol=1e-12)

    def by_hand(x, a):
        return walk_by_hand(10**6, x, a)[0]

    expected = jax.jacfwd(jax.jacfwd(by_hand, (0, 1)), (0, 1))(*point)
    assert_close(jax.jit(jax.jacfwd(jax.jacfwd(f, (0, 1)), (0, 1)))(*point), expected)
    ones = floats(1.0, 1.0)
    assert_close(jax.jvp(f, point, ones), jax.jvp(by_hand, point, ones))
    batch = jnp.array([0.3, 0.4])
    for reverse, x in (
        (jax.grad(f), 0.3),
        (jax.jit(jax.hessian(f)), 0.3),
        (jax.vmap(jax.grad(f), (0, None)), batch),
    ):
        with pytest.raises(UnsupportedOpError, match="max_steps=1000"):
            reverse(x, 0.7)


# -- what it is made of ------------------------------------------------------------------------------


class Counted(SameType):
    """Twice its input, and how often JAX asks what it is."""

    seen = 0

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 2 * inputs[0]


@jax_funcify.register(Counted)
def counted_in_jax(op, **kwargs):
    def twice(x):
        Counted.seen += 1
        return 2 * x

    return twice


def loops_of(f, *args):
    """How many loops XLA is given. (A jaxpr does not show what a primitive with rules of ours runs.)"""
    return jax.jit(f).lower(*args).as_text().count("stablehlo.while")


@pytest.mark.parametrize("bound", [20, 100_000])
def test_one_loop_and_a_step_that_is_traced_a_few_times(bound):
    out = while_loop(lambda s: s < A, lambda s: Counted()(s) + 0.1, X, max_steps=bound)
    f = jaxify([X, A], out)
    before = Counted.seen
    assert loops_of(f, 0.3, 9.0) == 1
    assert Counted.seen - before <= 3
    before = Counted.seen
    jax.make_jaxpr(jax.value_and_grad(f))(0.3, 9.0)
    assert Counted.seen - before <= 5
    assert jax.grad(f)(0.3, 9.0) == 32.0  # of five steps


@pytest.mark.usefixtures("as_users_have_it")
def test_memory_does_not_grow_with_the_bound():
    width = 100
    x = pt.dvector("x")

    def memory(bound):
        out = while_loop(
            lambda s: s.sum() < 1e3, lambda s: s + pt.exp(-s) + 0.1, x, max_steps=bound
        )
        compiled = jax.jit(jax.value_and_grad(jaxify([x], out.sum())))
        compiled = compiled.lower(jnp.zeros(width)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    few, many = memory(1_000), memory(100_000)
    assert few > 8 * width * 2  # it counts what reverse mode keeps
    # All states would be 80 MB. It grows as the square root of the bound, at most.
    assert many < 12 * few and many < 8 * width * 800


@pytest.mark.slow
def test_memory_of_a_batch_and_a_hessian():
    """Of second order too: what is kept is some levels of blocks, not all steps."""
    f = jaxify([X, A], walk(100_000)[0])
    for transformed, args in (
        (jax.hessian(f), [0.3, 0.7]),
        (jax.vmap(jax.grad(f)), [jnp.ones(8)] * 2),
    ):
        compiled = jax.jit(transformed).lower(*args).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < 100_000


def test_pytensors_own_until():
    """`pytensor.scan` with `until`: derivatives of every order by JAX, of the loop as it was imported."""
    trace = pytensor.scan(
        lambda s: (s + A * (1.5 + pt.cos(s)), until(s > 9 * A)),
        outputs_info=X,
        n_steps=3_000,
        return_updates=False,
    )
    f = jaxify([X, A], trace[-1])
    assert loops_of(f, 0.3, 0.7) == 1

    def by_hand(x, a):
        while True:
            x, before = x + a * (1.5 + jnp.cos(x)), x
            if before > 9 * a:
                return x

    point = floats(0.3, 0.7)
    assert_close(jax.jit(orders(f))(*point), orders(by_hand)(*point))


def test_a_loop_in_a_scan_of_jax():
    """What the program is under `lax.scan`: a carry that its loop goes on from."""
    f = jaxify([X, A], walk(50)[0])
    limits = jnp.array([0.2, 0.5, 0.9])

    def run(x):
        return jax.lax.scan(lambda x, a: (f(x, a), x), x, limits)[0]

    def by_hand(x):
        for a in limits:
            x = walk_by_hand(50, x, a)[0]
        return x

    assert_close(jax.jit(jax.grad(run))(0.3), jax.grad(by_hand)(0.3))


def test_an_op_with_a_derivative_of_its_own_in_a_step():
    """JAX 0.12 wants to lower what it is made of, for which there is no rule, before all else."""
    x, among = pt.dmatrix("x"), pt.dvector("among")

    def step(c):
        return pt.tanh(pt.extra_ops.searchsorted(pt.sort(among), c)).astype("float64") + c

    y = while_loop(lambda c: (c < 2).all(), step, x, max_steps=2)
    f = jax.jit(jaxify([x, among], y.sum(), loops="xla"))
    at = np.array([[-1.0, 0.5]]), np.array([0.0])
    np.testing.assert_allclose(f(*at), -0.5 + 2 * np.tanh(1.0))
    np.testing.assert_allclose(jax.grad(f)(*at), [[1.0, 1.0]])
