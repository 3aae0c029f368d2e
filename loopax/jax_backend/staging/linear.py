"""Functions with their own derivatives, as primitives.

JAX's own means do not suffice here. A ``custom_vjp`` has no forward mode. JAX transposes the tangent of a
``custom_jvp``, which fails for a ``lax.while_loop``; and when partial evaluation splits a scan into a known
and a linear part, JAX loses the rule in the known part, so that the second reverse derivative of nested
loops fails. A `Function` keeps its rule, and its tangent can be `Linear`, which has both directions.
(``jax.custom_derivatives.linear_call`` is similar, but has no rule for ``vmap``.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from loopax.base.upstream.jax import ClosedJaxpr, Primitive, ad, batching, jaxpr_as_fun, mlir
from loopax.ir.sequences import partial_at, with_items
from loopax.jax_backend.staging.checkable import Checkable, has_checks
from loopax.jax_backend.staging.primitive_rules import (
    BatchAxes,
    Operand,
    Tangents,
    with_axis_in_front,
)
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array


@dataclass(frozen=True, eq=False)
class Linear:
    """A function of residuals and, linearly, of tangents. All arguments are flat lists of arrays.

    ``forward(residuals, tangents)`` gives its results, ``transpose(residuals, cotangents)`` the cotangents
    of the tangents, and ``smooth(residuals, tangents)`` the results by a program that JAX can differentiate
    again. If the ``shapes`` of its results are given, ``forward`` is traced only where it runs.
    """

    forward: Callable[[Any, Any], Sequence[Any]]
    transpose: Callable[[Any, Any], Sequence[Any]]
    smooth: Callable[[Any, Any], Sequence[Any]]
    shapes: Sequence[Any] | None = None

    def __call__(self, residuals: Sequence[Array], tangents: Sequence[Any]) -> list[Any]:
        return _linear.bind(
            *manual_axes.vary_alike([*residuals, *tangents]), of=self, n=len(residuals)
        )


_linear = Primitive("linear")


def _run(*args: jax.Array, of: Linear, n: int) -> list[Any]:
    return list(of.forward(list(args[:n]), list(args[n:])))


def _jvp(primals: Sequence[Array], tangents: Tangents, *, of: Linear, n: int) -> Any:
    if all(isinstance(t, ad.Zero) for t in tangents[:n]):
        dots = [ad.instantiate_zeros(t) for t in tangents[n:]]
        return of(primals[:n], primals[n:]), of(primals[:n], dots)
    moving = [k for k, t in enumerate(tangents) if not isinstance(t, ad.Zero)]

    smooth = partial_at(
        lambda *args: list(of.smooth(list(args[:n]), list(args[n:]))), primals, moving
    )
    return jax.jvp(smooth, [primals[k] for k in moving], [tangents[k] for k in moving])


def _transpose(
    cotangents: Tangents, *args: Array | ad.UndefinedPrimal, of: Linear, n: int
) -> list[Any]:
    cotangent_values = [ad.instantiate_zeros(c) for c in cotangents]
    return [*[None] * n, *of.transpose(list(args[:n]), cotangent_values)]


def _batch(args: Sequence[jax.Array], axes: BatchAxes, *, of: Linear, n: int) -> Any:
    size, args = _leading(args, axes)
    # Each row gets its own tangents, so that each has its own cotangents.
    tangents = [
        jnp.broadcast_to(x, (size, *x.shape)) if a is None else x
        for x, a in zip(args[n:], axes[n:], strict=True)
    ]
    inside = _mapped(axes[:n])

    def rows(f: Callable[[Any, Any], Sequence[Any]]) -> Callable[[Any, Any], Sequence[Any]]:
        return lambda residuals, linear: jax.vmap(f, in_axes=(inside, 0), axis_size=size)(
            residuals, linear
        )

    shapes = None
    if of.shapes is not None:
        shapes = [jax.ShapeDtypeStruct((size, *s.shape), s.dtype) for s in of.shapes]
    batch = Linear(rows(of.forward), rows(of.transpose), rows(of.smooth), shapes)
    outs = batch(args[:n], tangents)
    return outs, [0] * len(outs)


def _leading(args: Sequence[jax.Array], axes: BatchAxes) -> tuple[int, list[Any]]:
    """The size of a batch, and the arguments with the batch axis in front."""
    size = next(x.shape[a] for x, a in zip(args, axes, strict=True) if a is not None)
    return size, with_axis_in_front(args, axes)


def _mapped(axes: BatchAxes) -> list[Any]:
    return [None if a is None else 0 for a in axes]


# The parameter for the jaxpr of a `Function`: checkify opens the second, and so drops the rule.
_JAXPRS = "jaxpr", "call_jaxpr"


def _define(
    primitive: Primitive,
    run: Callable[..., Any],
    jvp: Callable[..., Any],
    batch: Callable[..., Any],
) -> None:
    @primitive.def_abstract_eval
    def types(*args: ShapedArray, **params: Any) -> Sequence[Any]:
        if jaxprs := [params[name] for name in _JAXPRS if name in params]:
            return jaxprs[0].out_avals
        outs = params["of"].shapes
        if outs is None:
            outs = jax.make_jaxpr(partial(run, **params))(*args).out_avals
        return manual_axes.results_like(args, outs)

    primitive.multiple_results = True
    primitive.def_impl(lambda *args, **of: jax.jit(lambda *xs: run(*xs, **of))(*args))
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=True))
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch


_define(_linear, _run, _jvp, _batch)
ad.primitive_transposes[_linear] = _transpose


@dataclass(frozen=True, eq=False)
class Function:
    """A function of a flat list of arrays, with a rule for its tangents.

    ``jvp(primals, tangents)`` gives the results and their tangents. A tangent that is None is zero.
    When JAX transposes the function, ``run`` is the linear part, if the rule ``applies_itself``: as the
    tangent of a solution of ``a x = b`` is again a solution.
    """

    run: Callable[[Any], Sequence[Any]]
    jvp: Callable[[Any, Any], tuple[Sequence[Any], Sequence[Any]]]
    applies_itself: bool = False

    def __call__(self, args: Sequence[Array]) -> list[Any]:
        # As a jaxpr it is traced once, and shows its contents.
        args = manual_axes.vary_alike(args)
        jaxpr: Any = jax.make_jaxpr(self.run)(args)
        return function_with_rule.bind(*args, of=self, **{_JAXPRS[has_checks(jaxpr)]: jaxpr})


function_with_rule = Checkable("function_with_a_rule")


def _run_function(*args: jax.Array, of: Function, **jaxpr: ClosedJaxpr) -> list[Any]:
    (closed,) = jaxpr.values()
    return list(jaxpr_as_fun(closed)(*args))


def _transpose_function(
    cotangents: Tangents, *args: Operand, of: Function, **jaxpr: ClosedJaxpr
) -> list[Any]:
    """Transpose the linear operands, by the rule at zero, or like a ``custom_jvp`` by its operations."""
    linear = [k for k, x in enumerate(args) if ad.is_undefined_primal(x)]
    run = of.run if of.applies_itself else of
    function = partial_at(lambda *every: list(run(every)), args, linear)
    zeros = [jnp.zeros(args[k].aval.shape, args[k].aval.dtype) for k in linear]
    arrived = iter(jax.vjp(function, *zeros)[1]([ad.instantiate_zeros(c) for c in cotangents]))
    return [next(arrived) if k in linear else None for k in range(len(args))]


def _jvp_function(
    primals: Sequence[Array], tangents: Tangents, *, of: Function, **jaxpr: ClosedJaxpr
) -> Any:
    tangent_values = [None if isinstance(t, ad.Zero) else t for t in tangents]
    outs, dots = of.jvp(list(primals), tangent_values)
    return outs, [
        ad.Zero(jax.typeof(x).to_tangent_aval()) if d is None else d
        for x, d in zip(outs, dots, strict=True)
    ]


def _batch_function(
    args: Sequence[jax.Array], axes: BatchAxes, *, of: Function, **jaxpr: ClosedJaxpr
) -> Any:
    size, args = _leading(args, axes)
    inside = _mapped(axes)

    def run(args: Sequence[jax.Array]) -> Any:
        return jax.vmap(of.run, in_axes=(inside,), axis_size=size)(args)

    def jvp(primals: Sequence[jax.Array], tangents: Sequence[jax.Array | None]) -> Any:
        moving = [k for k, t in enumerate(tangents) if t is not None]
        nonzero: list[int] = []

        def one(primals: Sequence[jax.Array], some: Sequence[jax.Array | None]) -> Any:
            outs, dots = of.jvp(primals, with_items([None] * len(primals), moving, some))
            nonzero[:] = [k for k, d in enumerate(dots) if d is not None]
            return outs, [dots[k] for k in nonzero]

        places = (inside, [inside[k] for k in moving])
        outs, some = jax.vmap(one, in_axes=places, axis_size=size)(
            primals, [tangents[k] for k in moving]
        )
        return outs, with_items([None] * len(outs), nonzero, some)

    outs = Function(run, jvp)(args)
    return outs, [0] * len(outs)


_define(function_with_rule, _run_function, _jvp_function, _batch_function)
ad.primitive_transposes[function_with_rule] = _transpose_function
