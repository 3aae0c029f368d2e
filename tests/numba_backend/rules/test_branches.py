"""Results of branches in a loop: one array for all steps, which no step may change while it is read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from jax import lax

import loopax
from loopax import native
from loopax.ir import Cond
from tests.numba_backend.agreement import assert_agrees

N = 40  # more than an array in locals may have
RNG = np.random.default_rng(0)
A, B, ROWS = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=(7, N))


def chosen(x, first, second, k=0):
    return lax.cond(x[k] > 0, first, second)


def state(a, b, x):
    y = chosen(x, lambda: jnp.sin(a[::-1]) + x, lambda: jnp.cos(b) * a)
    return (y, a), y


def swapped(a, b, x):
    y, z = chosen(x, lambda: (jnp.sin(a) + x, b[::-1] * 2), lambda: (b * x, jnp.cos(a)))
    return (z, y), (y, z)


def twice(a, b, x):
    y = chosen(x, lambda: jnp.cumsum(a) * 0.1 + x, lambda: b[::-1])
    return (y, y), (y, y)


def view(a, b, x):
    y = chosen(x, lambda: jnp.cumsum(a) * 0.1 + x, lambda: b * x)
    return (y[::-1], a), (y[::-1], b)


def passed_on(a, b, x):
    y, z = chosen(x, lambda: (a, b + x), lambda: (b, a[::-1]))
    return (y, z), y


def nested(a, b, x):
    y = chosen(x, lambda: chosen(x, lambda: jnp.sin(a[::-1]), lambda: b + x, 1), lambda: a)
    z = chosen(x, lambda: y[::-1], lambda: a, 2)
    return (z, y), (y, z)


def written(a, b, x):
    y = chosen(x, lambda: a.at[3].set(x[0]), lambda: b.at[2].add(1.0))
    return (y.at[5].set(7.0), y), y


@pytest.mark.parametrize("step", [state, swapped, twice, view, passed_on, nested, written])
def test_results_of_branches(step):
    def f(a, b, rows):
        return lax.scan(lambda s, x: step(*s, x), (a, b), rows)

    fast = native(f, loops="native")
    expected = jax.tree.leaves(jax.jit(f)(A, B, ROWS))
    for actual, value in zip(jax.tree.leaves(jax.jit(fast)(A, B, ROWS)), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-10, atol=1e-12)
    source = str(jax.jit(fast).lower(A, B, ROWS).as_text())
    assert "stablehlo.while" not in source


def test_a_step_allocates_no_array_for_them():
    a, xs = pt.vector("a", shape=(N,)), pt.matrix("xs", shape=(None, N))

    def step(c, x):
        y = loopax.cond(x[0] > 0, lambda c, x: pt.sin(c) + x, lambda c, x: c * x, c, x)
        return y[::-1], None

    last = loopax.scan(step, a, xs)[0]
    run = assert_agrees([a, xs], [last], [A, ROWS], native=False)
    steps = run.source[run.source.index("for i0") :]
    assert "empty(" not in steps
    assert "on_stack(" not in steps


def same_twice(a, b, x):
    y, z = chosen(x, lambda: (jnp.cumsum(a),) * 2, lambda: (jnp.cumsum(b), a[::-1]))
    return y.at[0].set(7.0), z, z.at[1].set(8.0)


def read_later(a, b, x):
    y = jnp.cumsum(a)
    z = chosen(x, lambda: y, lambda: jnp.cumsum(b))
    return z.at[0].set(7.0), y


def passed_through(a, b, x):
    y = jnp.cumsum(a)
    z = chosen(x, lambda: y, lambda: y + b)
    return z.at[0].set(7.0), z


@pytest.mark.parametrize("f", [same_twice, read_later, passed_through])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_results_outside_of_loops(f, sign):
    a, b = RNG.normal(size=(2, 200))
    expected = jax.jit(f)(a, b, np.array([sign]))
    actual = jax.jit(native(f, loops="native"))(a, b, np.array([sign]))
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)


def test_no_result_outside_of_loops_is_copied():
    """A branch that returns an array of its own, or one that nothing else reads, gives it away."""
    x, a = pt.vector("x", shape=(1000,)), pt.vector("a", shape=(1000,))
    y = loopax.cond(x[0] > 0, lambda y, a: y, lambda y, a: pt.cumsum(a), pt.cumsum(x), a)
    values = [RNG.normal(size=1000), RNG.normal(size=1000)]
    run = assert_agrees([x, a], [y], values, native=False)
    assert "copy" not in run.source
    assert run.source.count("empty(") == 2


def test_a_branch_that_is_rarely_taken_stays_short():
    """It has loops over small arrays, where the other branch has a line for each of their elements."""
    x = pt.matrix("x", shape=(3, 3))
    values = [RNG.normal(size=(3, 3))]
    n_loops = []
    for is_likely in (False, True):
        u = x.type()
        branches = [u @ u + u.T], [pt.exp(u) @ u * u - u.T]
        op = Cond.from_branches([u], *branches, is_likely=is_likely)
        outputs = op.bind(pt.gt(x[0, 0], 0.0), [x])
        runs = [
            assert_agrees([x], outputs, [sign * np.abs(v) for v in values], native=False)
            for sign in (1.0, -1.0)
        ]
        n_loops.append(runs[0].source.count("for i"))
    assert n_loops[0] == 0 < n_loops[1]
