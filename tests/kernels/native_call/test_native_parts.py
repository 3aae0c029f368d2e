"""Which equations become kernels, and what is said of those that do not."""

from __future__ import annotations

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import pytest
from jax import lax

import loopax
from loopax.frontend.from_jaxpr import reading
from loopax.kernels.ffi.kernel_code import KernelCode
from loopax.kernels.native_call import native_parts, part_kernels

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


def test_results_that_nobody_reads_need_no_rule() -> None:
    """In the step of a scan or a while loop, in a state or a trace of it, or in a branch."""

    def both(x: Any) -> Any:
        return jnp.cos(x), jnp.fft.fft(jnp.stack([x, x])).real

    def f(x: Any) -> Any:
        x, _ = lax.scan(lambda c, _: both(c), x, None, length=3)
        (x, _), _ = lax.scan(lambda c, _: (both(c[0]), None), both(x), None, length=3)
        x = lax.while_loop(lambda c: c < 3, lambda c: both(c)[0] + c + 2, x)
        return lax.fori_loop(
            0, 3, lambda _, c: lax.cond(c > 0, both, lambda c: (c, XS[:2]), c)[0], x
        )

    fast = loopax.native(f, loops="native")
    assert kernels(fast, 0.3)[1] == 0
    chex.assert_trees_all_close(fast(0.3), jax.jit(f)(0.3))


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


def sum_of_squares(xs: Any) -> Any:
    return (running_sum(xs**2)[1] ** 2).sum()


DERIVATIVES = {
    "value and gradient": jax.value_and_grad,
    "hessian": jax.hessian,
    "batch of gradients": lambda f: jax.vmap(jax.grad(lambda k: f(k * XS))),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_a_number_and_its_gradient_are_one_kernel(derivative: str) -> None:
    """So no trace is a result, and one measurement chooses the form of both."""
    f = loopax.native(sum_of_squares, loops="native")
    assert kernels(DERIVATIVES[derivative](f), XS) == (1, 0)


def test_a_linear_map_has_the_loops_of_jax_for_values_that_are_not_finite() -> None:
    """Elsewhere the product of the gradient and a tangent is NaN where forward mode is finite."""
    f = loopax.native(sum_of_squares, loops="native")
    assert kernels(lambda xs: jax.linearize(f, xs)[1](xs), XS) == (1, 2)


def test_a_gradient_with_an_integer_result_beside_the_number() -> None:
    def f(xs: Any) -> Any:
        total = sum_of_squares(xs)
        return total, jnp.floor(total).astype(int)

    value_and_grad = jax.value_and_grad(loopax.native(f, loops="native"), has_aux=True)
    assert kernels(value_and_grad, XS) == (1, 0)
    chex.assert_trees_all_close(value_and_grad(XS), jax.value_and_grad(f, has_aux=True)(XS))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("result", [lambda sums: sums, lambda sums: sums[-1] + 1j])
def test_a_pullback_of_an_array_or_a_complex_number_is_a_kernel_of_its_own(result: Any) -> None:
    f = loopax.native(lambda xs: result(running_sum(xs**2)[1]), loops="native")

    def pulled_back(xs: Any) -> Any:
        value, pullback = jax.vjp(f, xs)
        return pullback(value)

    assert kernels(pulled_back, XS) == (2, 0)


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
    assert "cannot be read, ValueError: seven (test_native_parts.py:" in str(loopax.explain(fast))


def test_code_that_is_too_long_is_written_once_and_not_measured(monkeypatch: Any) -> None:
    """Two loops that are refused together are not tried one by one, and nothing is left to compare."""
    written, compared = [], []
    real = KernelCode.__init__

    def noted(self: Any, *args: Any) -> None:
        written.append(self)
        real(self, *args)

    monkeypatch.setattr(KernelCode, "__init__", noted)
    monkeypatch.setattr(part_kernels, "_MOST_LINES", 4)
    monkeypatch.setattr(native_parts, "_times", lambda *forms: compared.append(forms))
    f, xs = (
        loopax.native(lambda xs: running_sum(running_sum(xs)[1])[0], loops="auto"),
        jnp.arange(300.0),
    )
    assert kernels(f, xs) == (0, 2)
    assert len(written) == 1 and not compared
    assert str(loopax.explain(f, xs)).count("would take long to compile") == 3


def test_loops_in_a_loop_that_is_too_long_are_not_written(monkeypatch: Any) -> None:
    """The outer loop, by the number of its nodes or once, says how long the code of the inner ones is."""
    written = []
    real = KernelCode.__init__

    def noted(self: Any, *args: Any) -> None:
        written.append(self)
        real(self, *args)

    def nested(x: Any) -> Any:
        def step(f: Any) -> Any:
            return lambda _, c: jnp.tanh(f(jnp.sin(c) * 1.5 + c)) - jnp.cos(c)

        return lax.fori_loop(
            0, 9, step(lambda c: lax.fori_loop(0, 9, step(lambda c: running_sum(c)[1]), c)), x
        )

    monkeypatch.setattr(KernelCode, "__init__", noted)
    monkeypatch.setattr(part_kernels, "_MOST_LINES", 2)
    assert kernels(loopax.native(nested, loops="auto"), XS)[0] == 0
    assert len(written) <= 1


def test_nested_loops_may_have_more_lines(monkeypatch: Any) -> None:
    """Refused, their inner loops are tried in turn, and are ready later than the whole."""
    native, xs = loopax.native(loops="auto"), jnp.arange(300.0)
    monkeypatch.setattr(part_kernels, "_MOST_LINES", 6)
    assert kernels(native(lambda xs: running_sum(xs)[0]), xs) == (0, 1)
    nested = native(lambda x: lax.fori_loop(0, 9, lambda _, c: running_sum(c)[1], x))
    assert kernels(nested, xs) == (1, 0)


def test_a_linear_solve_with_a_loop_that_stays_in_jax() -> None:
    """Its jaxprs are a named tuple."""

    def solve(product: Any, b: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            scale = jnp.fft.fft(jnp.ones(1)).real[0]
            return x - 0.4 * scale * (product(x) - b)

        return lax.fori_loop(0, 40, step, b)

    def f(a: Any) -> Any:
        return lax.custom_linear_solve(lambda v: v + a * v, XS, solve, solve)

    native = loopax.native(f, loops="native")
    chex.assert_trees_all_close(jax.jit(native)(0.7), XS / 1.7, rtol=1e-6)
    chex.assert_trees_all_close(jax.jacfwd(native)(0.7), -XS / 1.7**2, rtol=1e-6)
    assert "fft" in str(loopax.explain(native))
