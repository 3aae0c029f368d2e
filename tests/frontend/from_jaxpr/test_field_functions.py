"""Functions as the field writes them in plain JAX: their loops are native, and agree with JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loopax
from benchmarks.jax_functions import FUNCTIONS
from loopax.numba_backend.emit.emitter import Emitter

NAMES = sorted(FUNCTIONS)
JAX_ALONE = {"mandelbrot"}  # lengths of complex numbers, which XLA has faster
DIFFERENTIABLE = [name for name in NAMES if FUNCTIONS[name].is_differentiable]


def arguments(name: str) -> list[Any]:
    return [jnp.asarray(x) for x in FUNCTIONS[name].args]


def assert_close(actual: Any, desired: Any) -> None:
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True):
        assert x.dtype == y.dtype
        scale = max(1.0, float(np.max(np.abs(y))))
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9 * scale)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loop is native code, but for lengths of complex numbers, and no step calls anything else."""
    calls: list[str] = []
    note = Emitter.note_foreign_call

    def noted(self: Emitter, node: Any, *args: Any, **kwargs: Any) -> None:
        note(self, node, *args, **kwargs)
        calls.extend(str(call.node.op) for call in self.foreign_calls if call.in_step)

    monkeypatch.setattr(Emitter, "note_foreign_call", noted)
    f, args = FUNCTIONS[name].f, arguments(name)
    fast = loopax.native(f, loops="native")
    assert_close(fast(*args), jax.jit(f)(*args))
    assert loopax.explain(fast).are_native == (name not in JAX_ALONE)
    assert not calls


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_one_and_of_rows(name: str) -> None:
    f, (p, *data) = FUNCTIONS[name].f, arguments(name)
    slope = jax.grad(loopax.native(f, loops="native"))
    assert_close(jax.jit(slope)(p, *data), jax.jit(jax.grad(f))(p, *data))
    rows = jnp.stack([p, p * 1.01])
    axes = (0, *[None] * len(data))
    assert_close(
        jax.jit(jax.vmap(slope, axes))(rows, *data),
        jax.jit(jax.vmap(jax.grad(f), axes))(rows, *data),
    )
