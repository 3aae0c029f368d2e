"""Functions of the field in plain JAX: values, derivatives and batches of native code are those of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loopax
from tests.frontend.from_jaxpr.plain_functions import Plain, plain_functions

FUNCTIONS = plain_functions()


def _hessian(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jacfwd(jax.grad(f))


TRANSFORMATIONS: dict[str, Callable[..., Any]] = {
    "value": lambda f: f,
    "grad": jax.grad,
    "jvp": jax.jacfwd,
    "forward hessian": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "hessian": _hessian,
    "vmap": jax.vmap,
    "vmap of grad": lambda f: jax.vmap(jax.value_and_grad(f)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
}
_MOST = 1000  # numbers to differentiate by twice: of 20,000, all pairs of tangents take 64 TB
REVERSE = {"grad", "hessian", "vmap of grad", "checkpoint"}


def _cases() -> list[Any]:
    """What is cheap for each function, and everything for one."""
    cases = []
    for name, plain in FUNCTIONS.items():
        for how in TRANSFORMATIONS:
            if how in REVERSE and not plain.reverse:
                continue
            if how.endswith("hessian") and np.size(plain.args[0]) > _MOST:
                continue
            for dtype in ("float64", "float32"):
                quick = name == "garch" and dtype == "float64"
                marks = [] if quick else [pytest.mark.slow]
                cases.append(
                    pytest.param(name, how, dtype, id=f"{name}-{how}-{dtype}", marks=marks)
                )
    return cases


def _arguments(plain: Plain, how: str, dtype: str) -> tuple[Any, list[Any]]:
    first, *data = (
        jnp.asarray(x, dtype) if np.asarray(x).dtype.kind == "f" else x for x in plain.args
    )
    if how.startswith("vmap"):
        rows = jnp.arange(3, dtype=dtype).reshape(3, *[1] * first.ndim)
        first = first + 0.01 * rows
    return first, data


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "how", "dtype"), _cases())
def test_it_computes_what_jax_computes(name: str, how: str, dtype: str) -> None:
    plain = FUNCTIONS[name]
    at, data = _arguments(plain, how, dtype)
    fast = loopax.native(plain.f, loops="native")

    def of_first(f: Callable[..., Any]) -> Any:
        return jax.jit(TRANSFORMATIONS[how](lambda p: f(p, *data)))(at)

    actual, wanted = of_first(fast), of_first(plain.f)
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(wanted), strict=True):
        assert (x.dtype, x.shape, x.weak_type) == (y.dtype, y.shape, y.weak_type)
        scale = float(jnp.max(jnp.abs(y))) or 1.0
        close = 1e-9 if dtype == "float64" else 2e-4
        np.testing.assert_allclose(x, y, rtol=close, atol=close * scale)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.slow
def test_its_loops_are_native(name: str) -> None:
    plain = FUNCTIONS[name]
    fast = loopax.native(plain.f, loops="native")
    said = loopax.explain(fast, *plain.args)
    assert said.are_native, said
    assert len(said.loops) >= plain.loops
