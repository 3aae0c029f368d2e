"""The stages of a jitted function, for ``jax.export.export``, also after transformations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, overload

import jax
from pytensor.graph.fg import FunctionGraph

from loopax.base.errors import LoopTypeError
from loopax.calling.backend import BackendFunction
from loopax.calling.traced import TracedFunction
from loopax.ir.sequences import partial_at

P = ParamSpec("P")
Q = ParamSpec("Q")


class Stages(BackendFunction):
    """Gives a callable ``trace``, ``lower`` and ``eval_shape``, as ``jax.jit`` gives its result."""

    backend_name = "jax"

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def trace(self, *args: object, **kwargs: object) -> Any:
        """The result of ``jax.jit(self).trace``."""
        return jax.jit(self).trace(*args, **kwargs)

    def lower(self, *args: object, **kwargs: object) -> Any:
        """The result of ``jax.jit(self).lower``."""
        return jax.jit(self).lower(*args, **kwargs)

    def eval_shape(self, *args: object, **kwargs: object) -> Any:
        """The result of ``jax.eval_shape(self, ...)``."""
        return jax.eval_shape(self, *args, **kwargs)


class JaxTracedFunction(TracedFunction[P], Stages):
    """A Python function that JAX transforms and exports like a jitted function."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> JaxTracedFunction[...]: ...
        @overload
        def __get__(
            self: JaxTracedFunction[Concatenate[Any, Q]],
            instance: object,
            owner: type | None = None,
        ) -> JaxTracedFunction[Q]: ...
        def __get__(self, instance: object, owner: type | None = None) -> Any: ...


class Transformed(Stages):
    """A function that JAX has transformed, and can transform again."""

    def __init__(
        self, transformation: Callable[..., Any], f: Callable[..., Any], options: dict[str, Any]
    ) -> None:
        self._made_of = transformation, f, options
        self._f = transformation(f, **options)
        functools.update_wrapper(self, self._f, updated=())

    def __reduce__(self) -> Any:
        return type(self), self._made_of

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._f(*args, **kwargs)

    def as_read(self, *args: object, **kwargs: object) -> FunctionGraph:
        raise TypeError(
            f"{self!r} was made by a JAX transformation and has no PyTensor program. Explain the "
            "original function, explain(f), or transform variables: explain([x], pytensor.grad(y, x))."
        )


def transformed_by(transformation: Callable[..., Any]) -> Callable[..., Transformed]:
    """Wrap ``jax.grad``, ``jax.hessian``, ``jax.vmap`` or another, so that its results have stages too."""

    def transform(f: Callable[..., Any], **options: object) -> Transformed:
        return Transformed(transformation, f, options)

    return transform


# -- products, which JAX computes at once ------------------------------------------------------------


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Apply ``jax.jvp``, where an argument without a tangent, None, is constant."""
    some, primals, tangents = _moving(f, primals, tangents)
    value, slope = jax.jvp(some, primals, tangents)
    return value, slope


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The derivative of ``jax.grad(f)`` along the arguments that have a tangent."""
    some, moving, directions = _moving(f, primals, tangents)
    single = len(primals) == 1
    slopes = jax.grad(some, argnums=0 if single else tuple(range(len(moving))))
    return jax.jvp(slopes, moving, directions)[1]


def _moving(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Callable[..., Any], Any, Any]:
    """The function ``f`` of only the arguments that have a tangent, these arguments, and their tangents."""
    if len(primals) != len(tangents):
        raise LoopTypeError(
            f"There are {len(primals)} primals and {len(tangents)} tangents. Pass one tangent for each "
            "primal, None for a constant argument."
        )
    places = [k for k, t in enumerate(tangents) if t is not None]
    some = partial_at(f, primals, places)
    return some, tuple(primals[k] for k in places), tuple(tangents[k] for k in places)
