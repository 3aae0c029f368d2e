"""The stages of a jitted function, which ``jax.export.export`` asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax


class Stages:
    """Gives a callable ``trace``, ``lower`` and ``eval_shape``, as ``jax.jit`` gives its result."""

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As ``jax.jit(self).trace``."""
        return jax.jit(self).trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As ``jax.jit(self).lower``."""
        return jax.jit(self).lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As ``jax.eval_shape(self, ...)``."""
        return jax.eval_shape(self, *args, **kwargs)

    def transformed(self, name: str, **options: Any) -> Any:
        """``jax.grad``, ``jax.value_and_grad`` or ``jax.vmap`` of it, by ``name``."""
        return Transformed(getattr(jax, name)(self, **options))


class Transformed(Stages):
    """What a transformation by JAX gives, so that the next one is by JAX too."""

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f, updated=())
        self._f = f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._f(*args, **kwargs)
