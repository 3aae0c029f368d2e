"""Programs of PyTensor in the steps of JAX's loops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from jax import lax
from jax.experimental import checkify
from pytensor.raise_op import Assert

import loopax
from loopax.kernels.native_call import opened_kernels
from tests.kernels.native_call.test_native_parts import kernels

XS = jnp.linspace(-1.0, 1.0, 6)


@loopax.jaxify(loops="native")
def last(a: Any, xs: Any) -> Any:
    return loopax.reduce(lambda c, x: pt.tanh(a * c + x), 0.1, xs)


def descended(a: Any) -> Any:
    def step(a: Any, _: Any) -> Any:
        value, slope = jax.value_and_grad(last)(a, XS)
        return a - 0.1 * slope, value

    return lax.scan(step, a, None, length=7)


def until_small(a: Any) -> Any:
    return lax.while_loop(lambda a: last(a, XS) > 0.8, lambda a: a - 0.1 * jnp.abs(last(a, XS)), a)


def in_a_branch(a: Any) -> Any:
    return lax.fori_loop(0, 3, lambda k, a: lax.cond(k == 1, lambda a: last(a, XS), jnp.sin, a), a)


def over_rows(a: Any) -> Any:
    rows = jnp.arange(1.0, 4.0)

    def step(c: Any, _: Any) -> Any:
        return c + jax.vmap(last, (0, None))(c * rows, XS).sum(), None

    return lax.scan(step, a, None, length=3)[0]


def forward(a: Any) -> Any:
    def step(c: Any, _: Any) -> Any:
        return jax.jvp(lambda a: last(a, XS), (c,), (c + 1.0,))[1], None

    return lax.scan(step, a, None, length=3)[0]


@pytest.mark.parametrize(
    "f", [descended, until_small, in_a_branch, over_rows, forward], ids=lambda f: f.__name__
)
def test_a_loop_around_a_program_is_one_kernel(f: Any) -> None:
    native = loopax.native(f, loops="native")
    assert kernels(native, 0.7) == (1, 0) and loopax.explain(native).are_native
    for transform in (jax.jit, jax.vmap, jax.jacfwd):
        at = jnp.array([0.7, 0.3]) if transform is jax.vmap else 0.7
        compare(transform(native)(at), transform(f)(at))


def compare(values: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), values, expected)


def test_reverse_mode() -> None:
    native = loopax.native(descended, loops="native")
    compare(jax.grad(lambda a: native(a)[0])(0.7), jax.grad(lambda a: descended(a)[0])(0.7))


def test_a_loop_that_stays_in_jax_keeps_the_kernel_in_its_step() -> None:
    def step(c: Any, _: Any) -> Any:
        return last(c, XS) + jnp.fft.fft(c * XS).real.sum(), None

    def f(a: Any) -> Any:
        return lax.scan(step, a, None, length=3)[0]

    assert kernels(loopax.native(f, loops="native"), 0.7) == (1, 1)


def test_a_program_outside_of_loops_stays_a_kernel() -> None:
    @loopax.native(loops="native")
    def f(a: Any) -> Any:
        return lax.fori_loop(0, 3, lambda k, a: jnp.sin(a), last(a, XS))

    assert kernels(f, 0.7) == (2, 0)
    compare(f(0.7), np.sin(np.sin(np.sin(last(0.7, XS)))))


@pytest.mark.filterwarnings("ignore:The assertion")  # the step is traced before checkify runs
def test_checkify_sees_the_checks_of_a_program_in_a_step() -> None:
    root = loopax.jaxify(lambda x: pt.sqrt(Assert("negative")(x, pt.gt(x, 0.0))), loops="native")

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda k, x: root(x) - 0.5, x)

    error, _ = checkify.checkify(loopax.native(f, loops="native"))(0.25)
    assert "negative" in error.get()
    x = 16.0
    error, value = checkify.checkify(loopax.native(f, loops="native"))(x)
    assert error.get() is None
    for _ in range(3):
        x = x**0.5 - 0.5
    np.testing.assert_allclose(value, x)


def test_an_index_out_of_bounds_raises() -> None:
    @loopax.jaxify(loops="native")
    def element(a: Any, xs: Any) -> Any:
        total = loopax.reduce(lambda c, x: c * 0.5 + x * a, 0.0, xs)
        return total + xs[pt.floor(a * 50).astype("int64")]

    def f(a: Any) -> Any:
        def step(_: Any, c: Any) -> Any:
            return c * 0.5 + jax.grad(element)(c, XS) * 0.1

        return lax.fori_loop(0, 3, step, a)

    with pytest.raises(Exception, match="out of bounds"):
        jax.block_until_ready(loopax.native(f, loops="native")(0.7))


def test_a_program_that_cannot_be_traced_stays_a_kernel(monkeypatch: Any) -> None:
    """A gradient of a gradient within ``shard_map``: the constants of its JAX form vary along no axis."""

    def fails(*args: Any) -> Any:
        raise ValueError("mismatched varying manual axes")

    monkeypatch.setattr(opened_kernels, "jaxpr_of", fails)
    native = loopax.native(descended, loops="native")
    assert kernels(native, 0.7) == (1, 1)
    compare(native(0.7), descended(0.7))
