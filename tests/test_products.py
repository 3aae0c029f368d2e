"""`loopax.jvp`, `vjp` and `hvp`: of functions of variables, and of what `jaxify` returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from loopax import LoopTypeError, StatefulFunctionError, cond, hvp, jaxify, jvp, vjp
from loopax.numba_backend import NumbaFunction
from tests.derivatives.test_jacobians import X, agrees, by_hand, cost, hand_cost, rolled, run
from tests.numba_backend.interpreted import InterpretedFunction

NATIVE = InterpretedFunction.backend_name
T = np.cos(X)
x, a = pt.dvector("x"), pt.dscalar("a")


def test_the_pushforward_is_that_of_jax():
    agrees(run(jvp(rolled, (X, 0.7), (T, 0.2))), jax.jvp(by_hand, (X, 0.7), (T, 0.2)))
    value, slope = run(jvp(rolled, [X, 0.7], [T, None]))
    agrees((value, slope), jax.jvp(lambda v: by_hand(v, 0.7), (X,), (T,)))


def test_the_pullback_is_that_of_jax():
    value, pullback = vjp(rolled, X, 0.7)
    expected, hand = jax.vjp(by_hand, X, 0.7)
    cotangent = {"final": np.float64(0.3), "rows": T}
    agrees(run(value), expected)
    agrees(run(pullback(cotangent)), hand(jax.tree.map(jnp.asarray, cotangent)))


@pytest.mark.slow
def test_a_hessian_times_a_vector():
    hand = jax.grad(hand_cost, (0, 1))
    agrees(run(hvp(cost, (X, 0.7), (T, 0.2))), jax.jvp(hand, (X, 0.7), (T, 0.2))[1])
    one = jax.jvp(lambda v: jax.grad(hand_cost)(v, 0.7), (X,), (T,))[1]
    agrees(run(hvp(lambda v: cost(v, 0.7), (X,), (T,))), one)
    agrees(run(hvp(cost, (X, 0.7), (T, None))[0]), one)


def test_what_is_no_float():
    """An integer among the results has a tangent of zeros; one among the arguments no cotangent."""

    def f(v, n):
        return v[n], n

    (value, n), (slope, none) = run(jvp(f, (X, 2), (T, None)))
    assert (value, n, slope, none) == (X[2], 2, T[2], 0.0)
    _, pullback = vjp(lambda v, n: v * n, X, 2)
    by_v, by_n = pullback(T)
    assert by_n is None
    agrees(run(by_v), 2 * T)


def test_only_the_branch_that_is_taken_runs():
    value, slope = jvp(lambda v: cond(v > 0, lambda: pt.log(v), lambda: v), (-1.0,), (1.0,))
    assert run((value, slope)) == (-1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda b: jaxify(cost, backend=b), lambda b: jaxify([x, a], cost(x, a), backend=b)]
)
@pytest.mark.parametrize("backend", ["jax", NATIVE])
def test_of_what_jaxify_returns(make, backend):
    f = make(backend)
    agrees(jvp(f, (X, 0.7), (T, 0.2)), jax.jvp(hand_cost, (X, 0.7), (T, 0.2)))
    expected = jax.jvp(jax.grad(hand_cost, (0, 1)), (X, 0.7), (T, 0.2))[1]
    agrees(hvp(f, (X, 0.7), (T, 0.2)), expected)
    agrees(
        hvp(f, (X, 0.7), (None, 0.2))[0],
        jax.jvp(jax.grad(lambda b: hand_cost(X, b)), (0.7,), (0.2,))[1],
    )
    value, pullback = vjp(f, X, 0.7)
    expected, hand = jax.vjp(hand_cost, X, 0.7)
    agrees(value, expected)
    agrees(tuple(pullback(np.float64(2.0))), hand(jnp.asarray(2.0)))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: jvp(rolled, X, T), "takes primals as a tuple"),
        (lambda: jvp(rolled, (X, 0.7), (T,)), "2 primals and 1 tangents"),
        (
            lambda: jvp(rolled, (X, 0.7), (T[0], 0.2)),
            r"tangents\[0\] is .*must have the same shape",
        ),
        (
            lambda: jvp(lambda d: d["a"], ({"a": X},), ({"b": X},)),
            "another structure than its primal",
        ),
        (lambda: jvp(lambda n: n * 2.0, (3,), (1,)), r"jvp with respect to args\[0\]"),
        (lambda: hvp(lambda v: v, (X,), (T,)), "one float scalar"),
        (lambda: vjp(lambda v: v, X)[1]((X, X)), "another structure than the result"),
        (lambda: vjp(lambda v: v, X)[1](1.0), "cotangent 0 is"),
        (lambda: jvp(jaxify([x], x, backend="numba"), X, X), "takes primals as a tuple"),
        (
            lambda: jvp(jaxify([x], x, backend="numba"), (X, X), (X, X)),
            "2 primals, but the function takes 1",
        ),
        (lambda: jvp(jaxify([x], x), (X,), (X, X)), "1 primals and 2 tangents"),
    ],
)
def test_what_is_wrong_is_said(call, match):
    with pytest.raises(LoopTypeError, match=match):
        call()


def test_what_updates_something_has_none():
    n = pytensor.shared(np.float64(1.0), name="n")
    f = jaxify([x], x * n, updates={n: n + 1}, backend="numba")
    with pytest.raises(StatefulFunctionError, match="updates the shared variables n"):
        vjp(f, X)[1](X)
    assert isinstance(f, NumbaFunction)


@pytest.mark.parametrize("backend", ["jax", NATIVE])
def test_a_static_argument(backend):
    powers = {"cube": 3, "square": 2}
    f = jaxify(lambda v, kind: (v ** powers[kind]).sum(), static_argnames="kind", backend=backend)
    agrees(jvp(f, (X, "cube"), (T, None)), ((X**3).sum(), (3 * X**2 * T).sum()))
    agrees(jvp(f, (X, "square"), (T, None)), ((X**2).sum(), (2 * X * T).sum()))
    agrees(hvp(f, (X, "cube"), (T, None))[0], 6 * X * T)
    value, pullback = vjp(f, X, "cube")
    agrees(value, (X**3).sum())
    cotangent, none = pullback(np.float64(2.0))
    agrees(cotangent, 6 * X**2)
    assert none is None


@pytest.mark.parametrize("traced", [False, True])
def test_a_pullback_is_at_the_values_of_its_call(traced):
    w, at = pytensor.shared(1.0), X.copy()
    f = jaxify(lambda v: w * (v**3).sum(), backend=NATIVE)
    if not traced:
        f = jaxify([x], w * (x**3).sum(), backend=NATIVE)
    value, pullback = vjp(f, at)
    w.set_value(3.0)
    at[:] = 10.0
    agrees(value, (X**3).sum())
    agrees(pullback(np.float64(1.0))[0], 3 * X**2)
