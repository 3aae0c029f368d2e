"""Functions with derivatives of their own in loops, differentiated twice."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

import loopax
from loopax.jax_backend.staging import kept_rules


@jax.custom_jvp
def _steep(x: Any) -> Any:
    """A square that says of itself that its derivatives are ``100 x`` and 1000."""
    return x * x


@_steep.defjvp
def _steep_jvp(primals: Any, tangents: Any) -> Any:
    return _steep(primals[0]), _slope(primals[0]) * tangents[0]


@jax.custom_jvp
def _slope(x: Any) -> Any:
    return 100 * x


@_slope.defjvp
def _slope_jvp(primals: Any, tangents: Any) -> Any:
    return _slope(primals[0]), 1000 * tangents[0]


@jax.custom_jvp
def _pair(x: Any, n: Any) -> Any:
    """Two results, one of integers, of which the second is often not read."""
    return x * x, n + 1


@_pair.defjvp
def _pair_jvp(primals: Any, tangents: Any) -> Any:
    results = _pair(*primals)
    return results, (
        _slope(primals[0]) * tangents[0],
        np.zeros(np.shape(results[1]), jax.dtypes.float0),
    )


@jax.custom_jvp
def _quotient(a: Any, b: Any) -> Any:
    return b / a


@_quotient.defjvp
def _quotient_jvp(primals: Any, tangents: Any) -> Any:
    (a, b), (da, db) = primals, tangents
    q = _quotient(a, b)
    return q, _quotient(a, db - da * q)


STEEP = loopax.from_jax(_steep)
JITTED = loopax.from_jax(jax.jit(lambda x: _steep(x) + 0.0))
BRANCHED = loopax.from_jax(lambda x: jax.lax.cond(x > 0, _steep, jnp.negative, x))
LOOPED = loopax.from_jax(lambda x: jax.lax.fori_loop(0, 1, lambda i, c: _steep(c), x))
PAIRED = loopax.from_jax(lambda x: _pair(x, jnp.asarray(2))[0])
LITERAL = loopax.from_jax(lambda x: _pair(x, 2)[0])

x = pt.dvector("x")
X = np.array([2.0, 3.0])


def _total(step: Callable[[Any], Any], **options: Any) -> Any:
    return loopax.scan(lambda c, r: (c + step(r), c), pt.as_tensor(0.0), x, **options)[0]


def _inner_loop(row: Any) -> Any:
    return loopax.fori_loop(0, 1, lambda i, c: c + STEEP(row), pt.as_tensor(0.0))


def _until(step: Callable[[Any], Any]) -> Any:
    return loopax.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + step(x[s[0]])), (0, 0.0), max_steps=5
    )[1]


LOOPS = {
    "scan": lambda: _total(STEEP),
    "jit in scan": lambda: _total(JITTED),
    "branch in scan": lambda: _total(BRANCHED),
    "loop of JAX in scan": lambda: _total(LOOPED),
    "scan in scan": lambda: _total(_inner_loop),
    "checkpoint": lambda: _total(STEEP, checkpoint=1),
    "checkpoint of more": lambda: _total(STEEP, checkpoint=2),
    "several results": lambda: _total(PAIRED),
    "number among the arguments": lambda: _total(LITERAL),
    "while loop with a bound": lambda: _until(STEEP),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_second_derivatives_are_those_of_the_rules(name: str) -> None:
    f = loopax.jaxify([x], LOOPS[name](), loops="xla")
    assert np.allclose(jax.grad(f)(X), 100 * X)
    assert np.allclose(jax.hessian(f)(X), 1000 * np.eye(2))
    assert np.allclose(jax.jacrev(jax.grad(f))(X), 1000 * np.eye(2))
    assert np.allclose(jax.jacfwd(jax.jacfwd(f))(X), 1000 * np.eye(2))
    batch = np.stack([X, X + 1])
    assert np.allclose(jax.vmap(jax.hessian(f))(batch), 1000 * np.eye(2))


def test_rule_that_applies_its_own_function() -> None:
    quotient = loopax.from_jax(_quotient)
    f = loopax.jaxify([x], _total(lambda r: quotient(r, 2.0 * r + 3.0)), loops="xla")
    assert np.allclose(jax.grad(f)(X), -3 / X**2)
    assert np.allclose(jax.hessian(f)(X), np.diag(6 / X**3))


def test_linear_system_in_a_loop() -> None:
    a = np.array([[2.0, 0.3], [0.1, 1.0]])
    total = _total(lambda r: pt.linalg.solve(a * r, np.ones(2)).sum())
    f = loopax.jaxify([x], total, loops="xla")
    share = np.linalg.solve(a, np.ones(2)).sum()
    assert np.allclose(jax.grad(f)(X), -share / X**2)
    assert np.allclose(jax.hessian(f)(X), np.diag(2 * share / X**3))


def test_largest_elements_in_a_loop() -> None:
    """JAX's derivative of a maximum compares elements with it."""
    f = loopax.jaxify([x], _total(lambda r: pt.stack([r, r * r, 1 - r]).max() ** 2), loops="xla")
    assert np.allclose(jax.hessian(f)(X), np.diag(12 * X**2))


def test_program_without_rules_stays_as_it_is() -> None:
    def step(c: Any, row: Any) -> Any:
        return c * row, c

    before = jax.make_jaxpr(step)(1.0, 2.0)
    assert str(jax.make_jaxpr(kept_rules.with_kept_rules(step))(1.0, 2.0)) == str(before)
