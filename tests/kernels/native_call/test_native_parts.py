"""Which equations become kernels, and what is said of those that do not."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import loopax
from loopax.frontend.from_jaxpr import reading

XS = jnp.arange(5.0)


def running_sum(xs: Any) -> Any:
    return lax.scan(lambda c, x: (c + x, c), 0.0, xs)


def kernels(f: Any, *args: Any) -> tuple[int, int]:
    """How many kernels, and loops of XLA, what is compiled of ``f`` has."""
    text = jax.jit(f).lower(*args).as_text()
    return text.count("stablehlo.custom_call @loopax_"), text.count("stablehlo.while")


def test_a_loop_and_what_is_beside_it_is_one_kernel() -> None:
    f = loopax.native(lambda xs: jnp.sin(running_sum(jnp.cos(xs))[1]).sum(), loops="native")
    assert kernels(f, XS) == (1, 0)


def test_two_loops_in_a_row_are_one_kernel() -> None:
    f = loopax.native(lambda xs: running_sum(running_sum(xs)[1])[0], loops="native")
    assert kernels(f, XS) == (1, 0)


def test_what_has_no_rule_divides_a_program() -> None:
    def f(x: Any) -> Any:
        x = running_sum(x)[1]
        x = jnp.fft.fft(x).real
        return running_sum(x)[0]

    assert kernels(loopax.native(f, loops="native"), XS) == (2, 0)


def test_a_loop_in_the_step_of_a_loop_that_stays() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            c = running_sum(c)[1]
            return jnp.fft.fft(c).real, None

        return lax.scan(step, x, None, length=3)[0]

    fast = loopax.native(f, loops="native")
    assert kernels(fast, XS) == (1, 1)
    said = loopax.explain(fast, XS)
    assert not said.are_native
    assert "scan of 3 steps: JAX's: there is no native form of fft" in str(said)
    assert "scan of 5 steps: native" in str(said)


def test_a_gradient_is_a_kernel_forwards_and_one_back() -> None:
    f = loopax.native(lambda xs: (running_sum(xs**2)[1] ** 2).sum(), loops="native")
    assert kernels(jax.grad(f), XS) == (2, 0)


def test_by_cost_a_step_of_large_arrays_stays_with_xla() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (c @ c, None), x, None, length=2)[0]

    fast = loopax.native(f, loops="auto")
    assert kernels(fast, jnp.ones((300, 300))) == (0, 1)
    assert "us as JAX's operations" in str(loopax.explain(fast))


def test_explain_names_a_function_without_a_name() -> None:
    """A model with its data is often a ``functools.partial``, numpyro's potential for one."""
    fast = loopax.native(functools.partial(running_sum), loops="native")
    assert "loops of running_sum" in str(loopax.explain(fast, XS))


def test_explain_before_a_call() -> None:
    fast = loopax.native(running_sum, loops="native")
    assert not loopax.explain(fast).are_native
    assert "no loop so far" in str(loopax.explain(fast))


def test_without_a_loop_nothing_is_native() -> None:
    assert kernels(loopax.native(jnp.sin, loops="native"), XS) == (0, 0)


def test_loops_xla() -> None:
    assert kernels(loopax.native(running_sum, loops="xla"), XS) == (0, 1)


def test_a_symbol_for_a_length() -> None:
    fast = loopax.native(lambda x: running_sum(x)[0], loops="native")
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(fast))(jax.ShapeDtypeStruct((n,), XS.dtype))
    assert exported.call(XS) == 10.0


def test_a_rule_that_fails_leaves_the_loop_to_jax(monkeypatch: Any) -> None:
    def fails(eqn: Any, *inputs: Any) -> Any:
        raise ValueError("seven")

    monkeypatch.setitem(reading.RULES, "sin", fails)
    fast = loopax.native(
        lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, 3)[0], loops="native"
    )
    assert kernels(fast, XS) == (0, 1)
    assert "cannot be read, ValueError: seven" in str(loopax.explain(fast))
