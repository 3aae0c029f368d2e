"""The primitive under JAX's transformations, in any order, with all of it left to JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from jax.experimental.jet import jet
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import loopax
from loopax.kernels.native_call.function import NativeFunction
from tests.support.compare import primitives


def likelihood(p: Any, returns: Any) -> Any:
    def day(variance: Any, r: Any) -> Any:
        variance = p[0] + p[1] * r**2 + p[2] * variance
        return variance, jnp.log(variance) + r**2 / variance

    return -0.5 * lax.scan(day, 1.0, returns)[1].sum()


P = jnp.array([0.1, 0.2, 0.7])
RETURNS = jnp.asarray(np.random.default_rng(0).normal(size=7))
ROWS = P + 0.01 * jnp.arange(4)[:, None]


def in_a_scan(f: Callable[..., Any], wrap: Callable[..., Any] = lambda step: step) -> Any:
    def total(p: Any, returns: Any) -> Any:
        step = wrap(lambda c, _: (c + f(p * c, returns), None))
        return lax.scan(step, 1.0, None, length=3)[0]

    return total


TRANSFORMED = {
    "value": lambda f: f,
    "gradient": jax.grad,
    "of both arguments": lambda f: jax.grad(f, (0, 1)),
    "forwards": jax.jacfwd,
    "hessian": jax.hessian,
    "backwards twice": lambda f: jax.jacrev(jax.jacrev(f)),
    "forwards twice": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "third derivatives": lambda f: jax.jacfwd(jax.hessian(f)),
    "gradient of jvp": lambda f: jax.grad(
        lambda p, r: jax.jvp(partial(f, returns=r), (p,), (p,))[1]
    ),
    "linearized": lambda f: lambda p, r: jax.linearize(f, p, r)[1](p, r),
    "vjp": lambda f: lambda p, r: jax.vjp(f, p, r)[1](2.0),
    "batch": lambda f: lambda p, r: jax.vmap(f, (0, None))(ROWS, r),
    "batch of gradients": lambda f: lambda p, r: jax.vmap(jax.grad(f), (0, None))(ROWS, r),
    "gradient of a batch": lambda f: jax.grad(
        lambda p, r: jax.vmap(f, (0, None))(ROWS * p, r).sum()
    ),
    "batch of batches": lambda f: (
        lambda p, r: jax.vmap(lambda k: jax.vmap(f, (0, None))(k * ROWS, r))(jnp.arange(1.0, 3.0))
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "hessian of checkpoint": lambda f: jax.hessian(jax.checkpoint(f)),
    "in a step": lambda f: jax.grad(in_a_scan(f)),
    "in a step, hessian": lambda f: jax.hessian(in_a_scan(f, jax.checkpoint)),
    "in a branch": lambda f: jax.grad(lambda p, r: lax.cond(p[0] > 0, f, lambda p, r: p[0], p, r)),
    "nothing to derive": lambda f: jax.grad(lambda p, r: f(lax.stop_gradient(p), r) * p[0]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize("compiled", [False, True])
def test_it_is_transformed_as_the_function_is(how: str, compiled: bool) -> None:
    wrap = jax.jit if compiled else lambda f: f
    actual, wanted = (
        wrap(TRANSFORMED[how](f))(P, RETURNS)
        for f in (loopax.native(likelihood, loops="xla"), likelihood)
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), actual, wanted)


def test_what_does_not_vary_in_a_batch_has_no_axis() -> None:
    f = loopax.native(lambda p, n: (jnp.sin(p), n + 1), loops="xla")
    jaxpr = jax.make_jaxpr(jax.vmap(f, (0, None), (0, None)))(P, 2)
    assert [v.aval.shape for v in jaxpr.jaxpr.outvars] == [(3,), ()]


def test_traces_that_a_derivative_of_a_batch_keeps_are_not_transposed() -> None:
    batch = jax.vmap(jax.value_and_grad(loopax.native(likelihood)), (0, None))
    by_jax = jax.vmap(jax.value_and_grad(likelihood), (0, None))
    counts = [primitives(jax.make_jaxpr(f)(ROWS, RETURNS))["transpose"] for f in (batch, by_jax)]
    assert counts[0] <= counts[1]


def test_a_batch_leaks_no_tracer() -> None:
    with jax.check_tracer_leaks():
        batch = jax.jit(jax.vmap(jax.grad(loopax.native(likelihood)), (0, None)))
        chex.assert_trees_all_close(
            batch(ROWS, RETURNS), jax.vmap(jax.grad(likelihood), (0, None))(ROWS, RETURNS)
        )


def test_functions_with_derivatives_of_their_own_keep_them() -> None:
    @jax.custom_vjp
    def wrong(x: Any) -> Any:
        return jnp.sin(x)

    wrong.defvjp(lambda x: (wrong(x), x), lambda x, g: (7.0 * g,))

    @jax.custom_jvp
    def other(x: Any) -> Any:
        return jnp.cos(x)

    other.defjvp(lambda xs, ts: (other(*xs), 3.0 * ts[0]))
    f = loopax.native(lambda x: lax.scan(lambda c, _: (wrong(c) + other(c), None), x, None, 2)[0])
    assert jax.grad(f)(0.3) == 100.0


def test_pytrees_keywords_words_and_numbers() -> None:
    @loopax.native(loops="xla")
    def f(a: Any, *, kind: str, scale: float = 2.0) -> Any:
        return {kind: a["x"] * scale, "n": len(a["y"])}

    actual = f({"x": jnp.ones(2, jnp.float32), "y": [1.0, 2.0]}, kind="twice")
    assert actual["n"] == 2
    assert actual["twice"].dtype == jnp.float32
    np.testing.assert_array_equal(f({"x": 3.0, "y": []}, kind="k", scale=4.0)["k"], 12.0)


def test_a_call_of_arrays_looks_its_function_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By structure and classes of the leaves, unless one of them may be static, such as a word."""
    resolved: list[Any] = []
    resolve = NativeFunction._jitted_for

    def noted(self: NativeFunction, *key: Any) -> Any:
        resolved.append(key)
        return resolve(self, *key)

    monkeypatch.setattr(NativeFunction, "_jitted_for", noted)
    f = loopax.native(
        lambda x, by=1.0: jax.tree.map(lambda y: y * len(by) if by == "ab" else y * by, x)
    )
    for x, by, n in [
        (jnp.ones(2), 3.0, 1),
        (jnp.zeros(4, int), 2.0, 0),  # JAX traces it for the other type
        (np.ones(2), 3.0, 1),
        ({"x": jnp.ones(2)}, 3.0, 1),
        ({"y": jnp.ones(2)}, 3.0, 1),
        ({"x": jnp.ones(3)}, 4.0, 0),
        (jnp.ones(2), "ab", 1),
        (jnp.ones(3), "ab", 1),
        (jnp.ones(3), 3.0, 0),
    ]:
        resolved.clear()
        factor = 2.0 if by == "ab" else by
        chex.assert_trees_all_close(f(x, by), jax.tree.map(lambda y, k=factor: y * k, x))
        assert len(resolved) == n, (x, by)
    for _ in range(2):
        resolved.clear()
        np.testing.assert_allclose(jax.jit(lambda x: f(x, 2.0))(jnp.ones(3)), 2.0)
        assert len(resolved) == 1


def test_weak_types_stay() -> None:
    f = loopax.native(lambda x: (x, 2 * x, jnp.asarray(x)), loops="xla")
    actual, wanted = f(1.0), jax.jit(f.__wrapped__)(1.0)
    assert [x.weak_type for x in actual] == [x.weak_type for x in wanted]


def test_the_weak_types_of_a_gradient_are_jaxs() -> None:
    def f(start: Any, rate: Any) -> Any:
        def step(c: Any, r: Any) -> Any:
            after = jnp.sin(c * rate) + r
            return after, after * c

        return lax.scan(step, start, RETURNS)[1].sum()

    native = loopax.native(f, loops="xla")
    actual, wanted = (jax.grad(g, (0, 1))(0.1, 0.3) for g in (native, jax.jit(f)))
    assert [x.weak_type for x in wanted] == [False, True]
    assert [x.weak_type for x in actual] == [x.weak_type for x in wanted]


def test_the_weak_type_of_a_tangent_is_jaxs() -> None:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda i, c: jnp.sin(c) + i, x)

    tangents = [jax.linearize(g, 0.3)[1](1.0) for g in (loopax.native(f, loops="xla"), jax.jit(f))]
    assert [t.weak_type for t in tangents] == [True, True]
    np.testing.assert_allclose(*tangents)


def test_a_loop_that_has_no_reverse_mode_is_linearized() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c < 2, lambda c: (c + 1) * (x + 1), x)

    native = loopax.native(f, loops="xla")
    actual, wanted = (jax.linearize(g, 0.3)[1](2.0) for g in (native, f))
    np.testing.assert_allclose(actual, wanted)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(native)(0.3)


def test_a_linearized_function_is_finite_where_forward_mode_is() -> None:
    def f(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c + jnp.where(x > 0, jnp.sqrt(x), 0.0), None), 0.0, xs)[0]

    native, at = loopax.native(f, loops="xla"), jnp.array([0.0, 1.0, 4.0])
    assert jnp.isnan(jax.grad(native)(at)[0])  # as of f, backwards
    linear = jax.linearize(native, at)[1]
    assert linear(jnp.ones(3)) == 0.75
    np.testing.assert_array_equal(jax.vmap(linear)(jnp.eye(3)), [0.0, 0.5, 0.25])
    np.testing.assert_array_equal(jax.grad(linear)(jnp.ones(3))[1:], [0.5, 0.25])


@pytest.mark.slow
def test_a_linearized_function_has_derivatives() -> None:
    def slope(f: Any) -> Any:
        return lambda p: jax.linearize(f, p, RETURNS)[1](p, RETURNS)

    native = slope(loopax.native(likelihood, loops="xla"))
    for transform, at in ((jax.grad, P), (jax.jacfwd, P), (jax.vmap, ROWS)):
        actual, wanted = (transform(f)(at) for f in (native, slope(likelihood)))
        np.testing.assert_allclose(actual, wanted)


def test_a_method() -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = by

        @loopax.native(loops="xla")
        def __call__(self, x: Any) -> Any:
            return self.by * x

    assert Scaled(2.0)(3.0) == 6.0
    assert Scaled(5.0)(3.0) == 15.0


def test_it_closes_over_what_is_traced() -> None:
    def outer(a: Any) -> Any:
        return loopax.native(lambda x: (a * x).sum(), loops="xla")(jnp.arange(3.0))

    assert jax.grad(outer)(2.0) == 3.0
    np.testing.assert_array_equal(jax.vmap(outer)(jnp.arange(2.0)), [0.0, 3.0])


def test_effects_survive(capsys: Any) -> None:
    def f(x: Any) -> Any:
        jax.debug.print("x is {}", x)
        return lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0]

    assert loopax.native(f, loops="xla")(1.5) == 12.0
    jax.effects_barrier()
    assert "x is 1.5" in capsys.readouterr().out


def test_checkify_sees_its_divisions() -> None:
    f = loopax.native(lambda x: lax.scan(lambda c, _: (1 / c, None), x, None, length=1)[0])
    error, _ = checkify.checkify(f, checkify.float_checks)(0.0)
    assert "division by zero" in error.get()


def test_it_can_be_exported() -> None:
    f = loopax.native(likelihood, loops="native")
    exported = jax.export.export(jax.jit(f))(P, RETURNS)
    assert "custom_call" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(P, RETURNS), likelihood(P, RETURNS))


def to_the_next_row(x: Any) -> Any:
    return lax.ppermute(x, "rows", [(0, 1), (1, 2), (2, 0)])


@pytest.mark.both_stacks
@pytest.mark.parametrize("loops", ["native", "xla"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x - lax.pmean(x, "rows"),
        lambda x: to_the_next_row(lax.fori_loop(0, 3, lambda k, c: 1.5 * c, x)),
        lambda x: lax.fori_loop(0, 3, lambda k, c: 1.5 * to_the_next_row(c), x),
        lambda x: lax.fori_loop(0, 3, lambda k, c: 1.5 * c + lax.psum(c, "rows"), x),
        lambda x: lax.psum_scatter(x * jnp.arange(3.0), "rows") + lax.axis_index("rows"),
    ],
    ids=["mean", "permutation", "permutation in a loop", "sum in a loop", "scattered sum"],
)
def test_collectives_are_those_of_the_batch(f: Any, loops: str) -> None:
    rows = jnp.array([[0.5, 1.0, 3.0], [2.0, -1.0, 0.0]])
    for args in (rows[0], rows):
        batch, expected = loopax.native(f, loops=loops), jax.jit(f)
        for transform in (partial(jax.vmap, axis_name="rows"), jax.vmap)[: args.ndim]:
            batch, expected = transform(batch), transform(expected)
        np.testing.assert_allclose(batch(args), expected(args), rtol=1e-14)
        slopes = [jax.grad(lambda x, b=b: b(x).sum())(args) for b in (batch, expected)]
        np.testing.assert_allclose(*slopes, rtol=1e-14)


@pytest.mark.both_stacks
def test_taylor_series_are_those_of_the_function() -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y, x + y

    point, series = (0.5, 2.0), ((1.0, 0.3, 0.0), (0.0, 1.0, 0.2))
    chex.assert_trees_all_close(
        jet(loopax.native(f), point, series), jet(f, point, series), rtol=1e-12
    )


@pytest.mark.both_stacks
def test_the_gradient_of_an_argument_that_devices_share_is_a_sum_over_them() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("devices",))
    last = loopax.native(lambda a, x: lax.scan(lambda c, y: (a * c + y, None), 0 * x[0], x)[0])

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec("devices")),
        out_specs=PartitionSpec(),
    )
    def total(a: Any, xs: Any) -> Any:
        return lax.psum(last(a, xs[0]) * xs[0, 1], "devices")

    rows = jnp.array([[1.0, 2.0], [3.0, 5.0]])  # 2 (a + 2) + 5 (3 a + 5)
    assert jax.jit(jax.grad(total))(0.5, rows) == 17.0


BESIDE_A_LOOP: dict[str, Any] = {
    "zeros": lambda loop, h, w: loop(h) + jnp.zeros(2),
    "positions": lambda loop, h, w: loop(h) * jnp.arange(2),
    "a shared array": lambda loop, h, w: loop(h) * (2 * w),
    "a loop of a shared array": lambda loop, h, w: loop(h) + loop(w) * h,
    "a sum over devices": lambda loop, h, w: lax.psum(loop(h) * (w + 1), "devices") + h,
}


@pytest.mark.both_stacks
@pytest.mark.parametrize("name", BESIDE_A_LOOP)
def test_what_devices_share_beside_a_loop(name: str) -> None:
    """A kernel's results all vary between devices, so what does not stays outside."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("devices",))

    def f(h: Any, w: Any) -> Any:
        def loop(h: Any) -> Any:
            return lax.scan(lambda c, y: (c * y, None), h, jnp.stack([h, h]))[0]

        return BESIDE_A_LOOP[name](loop, h, w)

    def results(f: Callable[..., Any]) -> Any:
        specs = (PartitionSpec("devices"), PartitionSpec())
        mapped = jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=specs[0])
        h, w = jnp.arange(4.0), jnp.array([0.5, 2.0])
        slopes = jax.grad(lambda h, w: (mapped(h, w) ** 2).sum(), (0, 1))
        return jax.jit(mapped)(h, w), jax.jit(slopes)(h, w)

    native = loopax.native(f, loops="native")
    chex.assert_trees_all_close(results(native), results(f), rtol=1e-12)
    assert "native, about" in str(loopax.explain(native))


@pytest.mark.both_stacks
def test_a_gradient_of_arrays_with_explicit_sharding() -> None:
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(AxisType.Explicit,))
    f = loopax.native(lambda x: lax.fori_loop(0, 2, lambda i, y: y * x, x).sum())
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec("rows")))
        np.testing.assert_array_equal(jax.jit(jax.grad(f))(x), 3 * jnp.arange(4.0) ** 2)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match=r"f of loopax.native\(f\) must be a function, got 3"):
        loopax.native(3)
    with pytest.raises(ValueError, match="loops must be one of"):
        loopax.native(likelihood, loops="numba")
