"""The primitive ``loopax_functional``: a linear map from tangents to one number, with its gradient.

The pullback of a cotangent is the gradient times the cotangent. The pushforward is the inner product of
gradient and tangents if the gradient is finite. It may be NaN where forward mode gives a number: if an
operation that a ``where`` or an index does not select has an infinite derivative. Then JAX's operations
compute the pushforward from the arguments of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray

from loopax.base.upstream.jax import Primitive, ad, as_weak, batching, jaxpr_as_fun, low_jaxpr, mlir
from loopax.ir.sequences import partial_at
from loopax.jax_backend.staging.primitive_rules import BatchAxes, Tangents
from loopax.kernels.native_call.derivatives import transposed
from loopax.kernels.native_call.native_parts import Plan
from loopax.kernels.native_call.primitive import bind, trace_jaxpr
from loopax.numerics.manual_axes import cond


@dataclass(frozen=True, eq=False)
class Functional:
    """A linear map from tangents to one number, at some values.

    Parameters
    ----------
    gradient_types, value_types, tangent_types
        The types of the gradient, which has an array for each tangent, of the values that it was computed
        at, and of the tangents. The primitive has these three as its operands.
    from_values
        The map as a function of values and tangents, which JAX transforms.
    number
        The type of the number.
    plan
        The form of the loops of the function.
    """

    gradient_types: Sequence[ShapedArray]
    value_types: Sequence[ShapedArray]
    tangent_types: Sequence[ShapedArray]
    from_values: Callable[..., Sequence[Any]]
    number: ShapedArray
    plan: Plan

    @cached_property
    def product(self) -> Any:
        """Trace the inner product of a gradient and tangents."""

        def run(*args: jax.Array) -> list[Any]:
            n = len(self.gradient_types)
            pairs = zip(args[:n], args[n:], strict=True)
            result = reduce(jnp.add, (_product(*pair, self.number.dtype) for pair in pairs))
            return [as_weak(result) if self.number.weak_type else result]

        return trace_jaxpr(run, [*self.gradient_types, *self.tangent_types])

    @cached_property
    def jaxpr(self) -> Any:
        """Trace the functional: from gradient, values and tangents to the number."""
        types = [*self.gradient_types, *self.value_types, *self.tangent_types]
        return low_jaxpr(trace_jaxpr(self._run, types))

    @cached_property
    def jitted(self) -> Any:
        return jax.jit(jaxpr_as_fun(self.jaxpr))

    def _run(self, *args: jax.Array) -> Any:
        gradient, others = args[: len(self.gradient_types)], args[len(self.gradient_types) :]
        tangents = others[len(self.value_types) :]
        is_finite = reduce(jnp.logical_and, (jnp.isfinite(x).all() for x in gradient))
        return cond(
            is_finite,
            lambda: list(jaxpr_as_fun(self.product)(*gradient, *tangents)),
            lambda: list(self.from_values(*others)),
        )


def _product(slope: jax.Array, tangent: jax.Array, dtype: Any) -> jax.Array:
    """The inner product of a derivative and a tangent; its cotangent has the derivative's weak type.

    The cotangent of an argument of a conversion has the weak type of the argument.
    """
    if tangent.dtype != dtype or jax.typeof(slope).weak_type:
        tangent = tangent.astype(dtype)
    # Not `*`, which would convert the tangent; nor a product of vectors, which may be sharded.
    return jnp.sum(lax.mul(slope.astype(dtype), tangent))


functional_p = Primitive("loopax_functional")


def _run(*args: jax.Array, of: Functional) -> Any:
    return jaxpr_as_fun(of.jaxpr)(*args)


def _abstract(*args: ShapedArray, of: Functional) -> Any:
    return [of.number]


def _jvp(primals: Sequence[jax.Array], tangents: Tangents, *, of: Functional) -> Any:
    n = len(of.gradient_types)
    primals, tangents = primals[n:], tangents[n:]
    moving = [k for k, t in enumerate(tangents) if type(t) is not ad.Zero]
    function = partial_at(lambda *args: list(of.from_values(*args)), primals, moving)
    return jax.jvp(function, [primals[k] for k in moving], [tangents[k] for k in moving])


def _transpose(cotangents: Tangents, *args: Any, of: Functional) -> list[Any]:
    n = len(of.gradient_types)
    if type(cotangents[0]) is ad.Zero:
        return [None] * len(args)
    pullback = transposed(
        of.plan, of.product, (False,) * n + (True,) * len(of.tangent_types), (True,)
    )
    gradients = bind(pullback, [*args[:n], cotangents[0]], of.plan)
    return [*[None] * (len(args) - len(gradients)), *gradients]


def _batched(args: Sequence[jax.Array], axes: BatchAxes, *, of: Functional) -> Any:
    outs = jax.vmap(jaxpr_as_fun(of.jaxpr), in_axes=tuple(axes))(*args)
    return outs, [0] * len(outs)


functional_p.multiple_results = True
functional_p.def_impl(lambda *args, of: of.jitted(*args))
functional_p.def_abstract_eval(_abstract)
ad.primitive_jvps[functional_p] = _jvp
ad.primitive_transposes[functional_p] = _transpose
batching.primitive_batchers[functional_p] = _batched
mlir.register_lowering(functional_p, mlir.lower_fun(_run, multiple_results=True))
