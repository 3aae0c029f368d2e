"""A value whose tangent is zero where a mask is false, as a primitive.

``where(mask, x, stop_gradient(x))`` has the same tangent. The primitive is one operation, which costs
nothing in a program that is not differentiated, and a reader of the jaxpr of a step can see that it equals
``x``. (JAX 0.10 loses the rule of a ``custom_jvp`` in second derivatives of loops.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.experimental.jet import jet_rules

from loopax.base.upstream.jax import Primitive, ad, batching, mlir
from loopax.jax_backend.staging.primitive_rules import BatchAxes, Tangents, with_axis_in_front
from loopax.jax_backend.staging.static import is_traced
from loopax.numerics import manual_axes
from loopax.numerics.arrays import Array

_masked_tangent = Primitive("masked_tangent")


def masked_tangent(x: Array, mask: Array) -> Any:
    """Return ``x``, broadcast with ``mask``, with a tangent of zero where ``mask`` is false."""
    shape = jnp.broadcast_shapes(jnp.shape(x), jnp.shape(mask))
    x, mask = (jnp.broadcast_to(y, shape) for y in manual_axes.vary_alike([x, mask]))
    return _masked_tangent.bind(x, mask) if is_traced(x) else x


def _jvp(primals: Sequence[jax.Array], tangents: Tangents) -> Any:
    x, mask = primals
    return _masked_tangent.bind(x, mask), _within(mask, tangents[0])


def _transpose(cotangent: Any, x: Any, mask: jax.Array) -> Any:
    return _within(mask, cotangent), None


def _jet(primals: Sequence[jax.Array], series: Sequence[Sequence[jax.Array]]) -> Any:
    x, mask = primals
    return _masked_tangent.bind(x, mask), [_within(mask, term) for term in series[0]]


def _within(mask: jax.Array, t: Any) -> Any:
    return t if isinstance(t, ad.Zero) else jnp.where(mask, t, jnp.zeros_like(t))


def _batch(args: Sequence[jax.Array], axes: BatchAxes) -> Any:
    x, mask = (
        y if a is not None else y[None]
        for y, a in zip(with_axis_in_front(args, axes), axes, strict=True)
    )
    return masked_tangent(x, mask), 0


_masked_tangent.def_impl(lambda x, mask: x)
_masked_tangent.def_abstract_eval(lambda x, mask: x)
ad.primitive_jvps[_masked_tangent] = _jvp
ad.primitive_transposes[_masked_tangent] = _transpose
jet_rules[_masked_tangent] = cast(Any, _jet)
batching.primitive_batchers[_masked_tangent] = _batch
mlir.register_lowering(_masked_tangent, lambda context, x, mask: [x])
