"""``native(..., checks="nan")``: the first state, trace row or output that is not finite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import loopax
from loopax import NonFiniteError

RETURNS = np.random.default_rng(0).normal(size=20)
WITH_NAN = np.where(np.arange(20) == 13, np.nan, RETURNS)
in_both_forms = pytest.mark.parametrize("loops", ["native", "xla"])


def garch(p: Any, returns: Any) -> Any:
    def day(variance: Any, r: Any) -> Any:
        variance = p["omega"] + p["alpha"] * r**2 + 0.8 * variance
        return variance, {"log": jnp.log(variance), "square": r**2 / variance}

    _, terms = lax.scan(day, 1.0, returns)
    return -0.5 * (terms["log"] + terms["square"]).sum()


P = {"omega": 0.1, "alpha": 0.1}
NEGATIVE = {"omega": -1.0, "alpha": 0.0}


def raised(call: Callable[[], Any]) -> NonFiniteError:
    with pytest.raises(NonFiniteError) as caught:
        call()
    return caught.value


@pytest.mark.slow
@in_both_forms
def test_finite_values_are_those_of_the_function(loops: Any) -> None:
    f = loopax.native(garch, loops=loops, checks="nan")
    for transform in (lambda f: f, jax.grad, jax.hessian, jax.jit):
        actual, wanted = (transform(g)(P, RETURNS) for g in (f, garch))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), actual, wanted)


@in_both_forms
def test_step_name_and_line_of_a_state(loops: Any) -> None:
    f = loopax.native(garch, loops=loops, checks="nan")
    for _ in range(2):
        error = raised(lambda: f(P, WITH_NAN))
        assert error.steps == (13,)
        assert "garch: state variance is nan at step 13 of loop 'day'" in str(error)
        assert "test_finite_values.py:" in str(error)
    f(P, RETURNS)  # it can be called again


def test_a_row_of_a_trace() -> None:
    f = loopax.native(lambda p, r: jnp.nan_to_num(garch(p, r)), loops="native", checks="nan")
    assert "trace y['log'] is nan at step 0" in str(raised(lambda: f(NEGATIVE, RETURNS)))


TRANSFORMED = {
    "jit": jax.jit,
    "gradient": jax.grad,
    "compiled gradient": lambda f: jax.jit(jax.grad(f)),
    "forwards": lambda f: lambda p, r: jax.jvp(partial(f, p), (r,), (r,)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", TRANSFORMED)
def test_under_transformations(how: str) -> None:
    f = TRANSFORMED[how](loopax.native(garch, loops="native", checks="nan"))
    f(P, RETURNS)
    with pytest.raises(Exception, match="state variance is nan at step 13 of"):
        jax.block_until_ready(f(P, WITH_NAN))


def test_the_row_of_a_batch() -> None:
    f = jax.jit(jax.vmap(loopax.native(garch, loops="native", checks="nan"), (None, 0)))
    rows = np.stack([RETURNS, WITH_NAN])
    f(P, rows[:1])
    with pytest.raises(Exception, match="In row 1 of the batch: state variance"):
        jax.block_until_ready(f(P, rows))


def test_a_gradient_of_finite_values() -> None:
    def root(p: Any) -> Any:
        return jnp.sqrt(lax.scan(lambda c, _: (c * p["x"], None), p["x"], None, length=3)[0])

    f = loopax.native(root, loops="native", checks="nan")
    assert f({"x": 0.0}) == 0.0
    with pytest.raises(Exception, match=r"the gradient by 'p\['x'\]' is nan"):
        jax.block_until_ready(jax.grad(f)({"x": 0.0}))


def test_it_closes_over_what_is_traced() -> None:
    def outer(a: Any) -> Any:
        return loopax.native(lambda x: (a / x).sum(), checks="nan")(jnp.arange(1.0, 3.0))

    assert jax.grad(outer)(2.0) == 1.5
    np.testing.assert_array_equal(jax.vmap(outer)(jnp.arange(2.0)), [0.0, 1.5])


@in_both_forms
def test_loops_in_loops(loops: Any) -> None:
    def f(m: Any) -> Any:
        def row(total: Any, r: Any) -> Any:
            def add(s: Any, v: Any) -> Any:
                return s + v, None

            inner, _ = lax.scan(add, 0.0, r, reverse=True)
            return total + jnp.minimum(inner, 5.0), inner

        return lax.scan(row, 0.0, m)[0]

    checked = loopax.native(f, loops=loops, checks="nan")
    m = np.ones((4, 6))
    checked(m)
    m[2, 1] = np.inf
    error = raised(lambda: checked(m))
    assert error.steps == (2, 4)  # in the order in which the steps run
    assert "state s is infinite at outer step 2, step 4 of loop 'add'" in str(error)
    assert "in loop 'row'" in str(error)


@in_both_forms
def test_while_and_branches(loops: Any) -> None:
    def f(x: Any, halves: Any) -> Any:
        def double(c: Any) -> Any:
            n, y = c
            return n + 1, y * 2 - jnp.where(n == 3, jnp.inf, 0.0)

        def run(x: Any) -> Any:
            return jnp.maximum(lax.while_loop(lambda c: c[0] < 6, double, (0, x))[1], 0.0)

        return lax.cond(halves, lambda x: x / 2, run, x)

    checked = loopax.native(f, loops=loops, checks="nan")
    assert checked(1.0, True) == 0.5
    error = raised(lambda: checked(1.0, False))
    assert error.steps == (3,)
    assert "state c[1] is minus infinity at step 3 of loop 'double'" in str(error)


def test_entries_outputs_and_calls() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return lax.scan(lambda c, v: (c.at[1].add(v), None), jnp.zeros(3), x)[0]

    checked = loopax.native(inner, loops="native", checks="nan")
    error = raised(lambda: checked(jnp.array([1.0, jnp.inf])))
    assert "entry [1] of state c is infinite at step 1" in str(error)
    outputs = loopax.native(lambda x: {"a": x, "n": 1, "b": 1 / x}, checks="nan")
    assert outputs(2.0)["b"] == 0.5
    assert "output ['b'] is infinite" in str(raised(lambda: outputs(0.0)))


def test_a_loop_without_native_code_is_checked() -> None:
    def step(c: Any, v: Any) -> Any:
        return jnp.fft.fft(c).real * v, None

    f = loopax.native(lambda x, v: lax.scan(step, x, v)[0], loops="native", checks="nan")
    error = raised(lambda: f(jnp.ones(4), jnp.array([1.0, np.nan])))
    assert "entry [0] of state c is nan at step 1 of loop 'step'" in str(error)


def test_values_that_no_output_needs_are_not_checked() -> None:
    def f(x: Any) -> Any:
        final, logs = lax.scan(lambda c, v: (c + v, jnp.log(c)), 0.0, x)
        return final

    assert loopax.native(f, loops="native", checks="nan")(jnp.ones(3)) == 3.0


@pytest.mark.slow
def test_integers_and_keys() -> None:
    @loopax.native(loops="native", checks="nan")
    def walk(key: Any, n: Any) -> Any:
        def step(c: Any, key: Any) -> Any:
            return (c[0] + jax.random.normal(key), c[1] + 1), c[1]

        return lax.scan(step, (0.0, n), jax.random.split(key, 4))

    (x, n), rows = walk(jax.random.key(0), 5)
    assert np.isfinite(x)
    assert n == 9
    np.testing.assert_array_equal(rows, [5, 6, 7, 8])


def test_it_prints_once(capsys: Any) -> None:
    def step(c: Any, v: Any) -> Any:
        jax.debug.print("v is {}", v)
        return c / v, None

    f = loopax.native(lambda x: lax.scan(step, 1.0, x)[0], checks="nan")
    raised(lambda: f(jnp.array([1.0, 0.0])))
    jax.effects_barrier()
    assert capsys.readouterr().out.count("v is 0.0") == 1


def test_unknown_checks_are_refused() -> None:
    with pytest.raises(ValueError, match="checks must be None or 'nan', got 'raise'"):
        loopax.native(garch, checks="raise")  # type: ignore[call-overload]
