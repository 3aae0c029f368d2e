"""A gradient at the cotangent 1 serves every cotangent only if the pullback is linear in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import loopax
from loopax.kernels.native_call.linearity import is_linear

M = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)) + 3 * np.eye(3))
V = jnp.arange(3.0)


def running(step: Callable[..., Any]) -> Callable[[Any], Any]:
    """Five steps from zeros, as in a pullback, with the cotangent as a sequence."""
    return lambda g: lax.scan(step, jnp.zeros(3), g * jnp.ones((5, 1)), reverse=True)


LINEAR = {
    "product": lambda g: g * V / 2,
    "moves": lambda g: jnp.pad((g * V)[::-1][:2].reshape(2, 1), ((0, 1), (0, 0)))[
        jnp.array([2, 0])
    ],
    "write": lambda g: jnp.zeros(5).at[jnp.array([1, 3])].add(g).at[0].set(-g),
    "selection": lambda g: jnp.where(V > 1, g, 0.0),
    "solution": lambda g: jnp.linalg.solve(M, g * V),
    "factor": lambda g: jax.scipy.linalg.cho_solve((jnp.eye(3), True), g * V),
    "branch": lambda g: lax.cond(V.sum() > 1, lambda g: g * V, lambda g: 0 * V, g),
    "loop": running(lambda c, g: (c @ M + g, c)),
    "counted loop": lambda g: lax.fori_loop(0, 4, lambda i, c: c * 2 + g, jnp.zeros(3)),
    "call": lambda g: jax.jit(lambda g: jnp.fft.fft(g * V).real)(g),
    "barrier": lambda g: lax.optimization_barrier((V, g * V))[1],
    "single precision": lambda g: (g.astype("float32") * 2).astype("float64"),
    "zeros": lambda g: jnp.asarray(np.zeros(3)),
}
NOT_LINEAR = {
    "constant": lambda g: V,
    "constant beside it": lambda g: (g, V),
    "clip": lambda g: jnp.clip(g, -1, 1),
    "norm": lambda g: g / jnp.abs(g),
    "square": lambda g: g * g,
    "offset": lambda g: g + 1,
    "offset beside it": lambda g: jnp.stack([g, 1.0]),
    "round": lambda g: jnp.round(g),
    "integer": lambda g: V * g.astype("int32"),
    "half precision": lambda g: (g.astype("float16") * 2).astype("float64"),
    "condition": lambda g: jnp.where(g > 0, V, 0.0),
    "divisor": lambda g: V / g,
    "matrix": lambda g: jnp.linalg.solve(g * M, V),
    "tolerance": lambda g: jax.scipy.sparse.linalg.cg(lambda x: M @ (M.T @ x), g * V, atol=1e-3)[0],
    "step": running(lambda c, g: (jnp.tanh(c) + g, c)),
    "step with an offset": running(lambda c, g: (c + g, c + 1)),
    "start": lambda g: lax.scan(lambda c, _: (c + g, None), 1.0, None, length=3)[0],
    "condition of a loop": lambda g: lax.while_loop(lambda c: c < 3, lambda c: c + g, g),
    "branch of it": lambda g: lax.cond(g > 0, lambda g: g, lambda g: 2 * g, g),
    "print": lambda g: (jax.debug.callback(lambda v: None, g), g)[1],
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear(name: str) -> None:
    assert is_linear(jax.make_jaxpr(LINEAR[name])(1.0))


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_not_linear(name: str) -> None:
    assert not is_linear(jax.make_jaxpr(NOT_LINEAR[name])(1.0))


def test_a_kernel_is_linear_in_its_cotangents() -> None:
    x = jax.numpy.ones(3)
    _, pull = jax.vjp(
        loopax.native(lambda x: lax.scan(lambda c, v: (jnp.sin(c) * v, c), 1.0, x)[1]), x
    )
    assert is_linear(jax.make_jaxpr(lambda g: pull(g * x))(1.0))


RULES = {
    "clips": lambda residuals, g: (jnp.clip(g, -1.0, 1.0),),
    "normalizes": lambda residuals, g: (g / jnp.abs(g),),
    "rounds": lambda residuals, g: (jnp.round(g * 8) / 8,),
    "scales": lambda residuals, g: (3 * g,),
    "ignores": lambda residuals, g: (jnp.ones_like(g),),
}


@pytest.mark.parametrize("loops", ["native", "xla"])
@pytest.mark.parametrize("name", RULES)
def test_rules_get_the_cotangent_of_the_call(name: str, loops: str) -> None:
    """JAX's documentation clips gradients in this way."""

    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        return x

    ruled.defvjp(lambda x: (x, None), RULES[name])

    def net(w: Any) -> Any:
        return lax.scan(lambda h, x: (ruled(jnp.tanh(w * h + x)), None), 0.0, V)[0]

    fast = loopax.native(net, loops=loops)
    for scale in (1.0, 10.0, -100.0):
        expected = jax.grad(lambda w, s=scale: s * net(w))(0.5)
        np.testing.assert_allclose(jax.grad(lambda w, s=scale: s * fast(w))(0.5), expected)
    square = [jax.vmap(jax.grad(lambda w, f=f: (f(w) - 30) ** 2))(V) for f in (fast, net)]
    np.testing.assert_allclose(*square)


def test_a_scaled_loss_in_half_precision() -> None:
    def loss(w: Any, xs: Any) -> Any:
        w = w.astype(jnp.float16)
        hs = lax.scan(lambda h, x: (jnp.tanh(w * h + x),) * 2, jnp.float16(0), xs)[1]
        return 1e-3 * (hs.astype(jnp.float32) ** 2).mean()

    w, scale = jnp.float32(0.5), jnp.float32(2.0**15)
    xs = (np.random.default_rng(0).normal(size=64) * 0.01).astype(np.float16)
    slopes = [
        jax.grad(lambda w, f=f: scale * f(w, xs))(w) / scale for f in (loss, loopax.native(loss))
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-3)
