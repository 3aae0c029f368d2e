"""Prints, callbacks, checks, scopes and devices: what surrounds native loops in a JAX program."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify, io_callback

import loopax


def powers(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c) * x, c), x, None, length=5)


@loopax.native(loops="native")
def of_the_module(x: Any) -> Any:
    return powers(x)[0]


def test_a_loop_beside_a_print_is_native() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x)
        return powers(x)

    fast = loopax.native(f, loops="native")
    np.testing.assert_allclose(fast(1.5)[1], powers(1.5)[1])
    np.testing.assert_allclose(jax.grad(lambda x: fast(x)[0])(1.5), jax.grad(of_the_module)(1.5))
    jax.effects_barrier()
    assert seen == [1.5, 1.5]
    assert loopax.explain(fast).are_native


def test_a_loop_with_a_print_stays_and_explain_says_why() -> None:
    seen: list[float] = []

    def step(c: Any, _: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), c)
        return 2 * c, None

    fast = loopax.native(lambda x: lax.scan(step, x, None, length=3)[0], loops="native")
    assert fast(1.0) == 8.0
    jax.effects_barrier()
    assert sorted(seen) == [1.0, 2.0, 4.0]
    assert "scan of 3 steps: JAX's: there is no native form of debug_callback" in str(
        loopax.explain(fast)
    )


def test_an_ordered_callback_feeds_a_native_loop() -> None:
    def f(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), x.dtype)
        x = io_callback(lambda v: np.asarray(2 * v), shape, x, ordered=True)
        return powers(x)[0]

    fast = loopax.native(f, loops="native")
    np.testing.assert_allclose(fast(jnp.float64(0.5)), powers(1.0)[0])
    assert loopax.explain(fast).are_native


@pytest.mark.parametrize("ordered", [False, True])
def test_a_callback_in_a_derivative_rule_runs_once(ordered: bool) -> None:
    """The effect appears where the function is differentiated, after its call has been traced."""
    seen: list[float] = []

    @jax.custom_vjp
    def recorded(x: Any) -> Any:
        return x

    def backward(_: None, g: Any) -> Any:
        io_callback(lambda v: seen.append(float(v)), None, g, ordered=ordered)
        return (g,)

    recorded.defvjp(lambda x: (x, None), backward)

    def f(x: Any) -> Any:
        return recorded(powers(x)[0])

    slopes = []
    for g in (f, loopax.native(f, loops="native")):
        seen.clear()
        slopes.append(jax.jit(jax.grad(lambda x, g=g: 3 * g(x) ** 2))(0.5))
        jax.effects_barrier()
        np.testing.assert_allclose(seen, [6 * powers(0.5)[0]])
    np.testing.assert_allclose(*slopes)


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="JAX has no references")
def test_a_derivative_rule_writes_to_a_reference() -> None:
    @jax.custom_vjp
    def stash(ref: Any, x: Any) -> Any:
        return x

    def backward(ref: Any, g: Any) -> Any:
        ref[...] = g
        return None, g

    stash.defvjp(lambda ref, x: (x, ref), backward)

    def f(x: Any, ref: Any) -> Any:
        return stash(ref, powers(x)[0])

    values = []
    for g in (f, loopax.native(f, loops="native")):
        ref = jax.new_ref(0.0)
        slope = jax.grad(lambda x, g=g, ref=ref: 3 * g(x, ref))(0.5)
        values.append([slope, ref[...]])
    np.testing.assert_allclose(*values)


def test_checks_inside_of_a_native_function() -> None:
    def step(c: Any, _: Any) -> Any:
        checkify.check(c > 0, "c is {c}", c=c)
        return c - 1.0, None

    def f(x: Any) -> Any:
        return lax.scan(step, x, None, length=3)[0]

    for checked in (
        checkify.checkify(loopax.native(f)),
        loopax.native(checkify.checkify(f), loops="native"),
    ):
        error, _ = jax.jit(checked)(1.5)
        assert "c is -0.5" in error.get()
        assert checked(4.0)[0].get() is None


def test_named_scopes_stay() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("the_filter"):
            return powers(x)[0]

    lowered = jax.jit(loopax.native(f, loops="native")).lower(1.5)
    assert "the_filter" in lowered.as_text(debug_info=True)
    assert "custom_call @loopax_" in lowered.as_text()


def test_explain_names_the_loop_inside_of_a_call() -> None:
    fast = loopax.native(jax.jit(powers), loops="native")
    assert "scan of 5 steps: native" in str(loopax.explain(fast, 1.5))


def test_explain_takes_a_bound_method() -> None:
    class Model:
        @loopax.native(loops="native")
        def run(self, x: Any) -> Any:
            return powers(x)[0]

    assert loopax.explain(Model().run, 1.5).are_native
    assert "loops of run" in str(loopax.explain(Model().run))


def test_donated_arguments() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, k: (c.at[k].add(1.0), c[k]), x, jnp.arange(5))

    fast = jax.jit(loopax.native(f, loops="native"), donate_argnums=0)
    x = jnp.zeros(8)
    final, _ = fast(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(final, f(jnp.zeros(8))[0])


def test_without_jit_and_with_debug_nans() -> None:
    with jax.disable_jit():
        np.testing.assert_allclose(of_the_module(1.5), powers(1.5)[0])
    logs = loopax.native(lambda x: lax.scan(lambda c, _: (jnp.log(c), None), x, None, 3)[0])
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        logs(-1.0)


def test_it_is_pickled_and_copied() -> None:
    of_the_module(1.5)
    assert pickle.loads(pickle.dumps(of_the_module)) is of_the_module
    assert copy.deepcopy(of_the_module) is of_the_module
    other = pickle.loads(pickle.dumps(loopax.native(powers, loops="native", checks="nan")))
    np.testing.assert_allclose(other(1.5)[0], powers(1.5)[0])
    assert (other.checks, other.plan.loops) == ("nan", "native")


TWO_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import loopax

def f(x):
    return lax.scan(lambda c, _: (jnp.sin(c) * x, None), x, None, length=5)[0]

mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("d")))
fast = loopax.native(f, loops="native")
y = fast(x)
assert y.sharding.spec == P("d")
np.testing.assert_allclose(y, f(x))
assert "the program is divided between devices" in str(loopax.explain(fast))
parts = loopax.native(f, loops="native")
mapped = jax.jit(jax.shard_map(parts, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
np.testing.assert_allclose(mapped(x), y)
assert loopax.explain(parts).are_native
"""


@pytest.mark.slow
def test_two_devices() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_ENABLE_X64": "1"}
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        capture_output=True,
        text=True,
        cwd=root,
        env={"PATH": "", "HOME": str(root), "LOOPAX_CACHE_DIR": "", **flags},
    )
    assert done.returncode == 0, done.stderr
