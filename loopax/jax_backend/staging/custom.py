"""A function with a pullback of its own, that JAX can differentiate in every mode.

``jax.custom_vjp`` would lose forward mode. Here the rule is a ``custom_jvp`` whose tangent is the
*transpose of the pullback*: for fixed inputs, the pullback is a linear map from cotangents to
cotangents, and its transpose maps tangents to tangents. Reverse mode transposes that once more, which
gives the pullback back. Derivatives of higher order differentiate the pullback itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def with_pullback(
    value: Callable[..., tuple[Any, ...]],
    pullback: Callable[[Any, Any, Any], Any],
    float_ins: Sequence[int],
    float_outs: Sequence[int],
    *,
    transposable: bool = True,
) -> Callable[..., tuple[Any, ...]]:
    """``value``, differentiated by ``pullback(inputs, outputs, cotangents)``.

    ``cotangents`` are those of the outputs at ``float_outs``, and it returns those of the inputs at
    ``float_ins``, both in order. With ``transposable=False``, where the pullback itself calls the
    host and so has no transpose, there is reverse mode only.
    """
    if not transposable:
        return _reverse_only(value, pullback, float_ins, float_outs)

    @jax.custom_jvp
    def function(*inputs: Any) -> tuple[Any, ...]:
        return tuple(jnp.asarray(x) for x in value(*inputs))

    @function.defjvp
    def function_jvp(primals: Any, tangents: Any) -> Any:
        outputs = function(*primals)

        def pulled_back(*cotangents: Any) -> tuple[Any, ...]:
            found = pullback(primals, outputs, cotangents)
            return tuple(
                jnp.broadcast_to(jnp.asarray(g, primals[k].dtype), primals[k].shape)
                for g, k in zip(found, float_ins, strict=True)
            )

        shapes = [jax.ShapeDtypeStruct(outputs[k].shape, outputs[k].dtype) for k in float_outs]
        pushed = jax.linear_transpose(pulled_back, *shapes)(tuple(tangents[k] for k in float_ins))
        out_tangents: list[Any] = [np.zeros(o.shape, dtype=jax.dtypes.float0) for o in outputs]
        for k, t in zip(float_outs, pushed, strict=True):
            out_tangents[k] = t
        return outputs, tuple(out_tangents)

    return function


def _reverse_only(value: Any, pullback: Any, float_ins: Any, float_outs: Any) -> Any:
    @jax.custom_vjp
    def function(*inputs: Any) -> tuple[Any, ...]:
        return tuple(jnp.asarray(x) for x in value(*inputs))

    def forward(*inputs: Any) -> Any:
        outputs = function(*inputs)
        return outputs, (inputs, outputs)

    def backward(residuals: Any, cotangents: Any) -> Any:
        inputs, outputs = residuals
        found = iter(pullback(inputs, outputs, [cotangents[k] for k in float_outs]))
        return tuple(
            jnp.asarray(next(found), x.dtype)
            if k in float_ins
            else np.zeros(x.shape, jax.dtypes.float0)
            for k, x in enumerate(inputs)
        )

    function.defvjp(forward, backward)
    return function
