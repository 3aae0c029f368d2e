"""The stages of a jitted function, which ``jax.export.export`` asks for, and what transformations leave."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from pytensor.graph.fg import FunctionGraph

from loopax.calling.backend import BackendFunction
from loopax.calling.traced import TracedFunction


class Stages(BackendFunction):
    """Gives a callable ``trace``, ``lower`` and ``eval_shape``, as ``jax.jit`` gives its result."""

    backend_name = "jax"

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As ``jax.jit(self).trace``."""
        return jax.jit(self).trace(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As ``jax.jit(self).lower``."""
        return jax.jit(self).lower(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """As ``jax.eval_shape(self, ...)``."""
        return jax.eval_shape(self, *args, **kwargs)


class JaxTracedFunction(TracedFunction, Stages):
    """A Python function for JAX, which transforms and exports it as it does a jitted function."""


class Transformed(Stages):
    """What a transformation by JAX gives, so that the next one is by JAX too."""

    def __init__(
        self, transformation: Callable[..., Any], f: Callable[..., Any], options: dict[str, Any]
    ) -> None:
        self._made_of = transformation, f, options
        self._f = transformation(f, **options)
        functools.update_wrapper(self, self._f, updated=())

    def __reduce__(self) -> Any:
        return type(self), self._made_of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._f(*args, **kwargs)

    def as_read(self, *args: Any, **kwargs: Any) -> FunctionGraph:
        raise TypeError(
            f"{self!r} was made by a transformation of JAX and has no PyTensor program. Explain what it "
            "was made from, explain(f), or transform variables: explain([x], pytensor.grad(y, x))."
        )


def transformed_by(transformation: Callable[..., Any]) -> Callable[..., Transformed]:
    """``jax.grad``, ``jax.value_and_grad`` or ``jax.vmap``, so that what it gives has stages too."""

    def transform(f: Any, **options: Any) -> Transformed:
        return Transformed(transformation, f, options)

    return transform
