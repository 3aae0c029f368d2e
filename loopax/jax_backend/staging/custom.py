"""A function with its own pullback, which JAX can differentiate in every mode.

For fixed inputs a pullback is a linear map from cotangents to cotangents. Reverse mode applies it directly;
forward mode applies its transpose, or if it has none, because an op in it runs on the host, the pullback is
applied to each unit vector of the outputs. Derivatives of higher order differentiate the pullback itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply

from loopax.base.errors import UnsupportedOpError, describe
from loopax.base.lock import TRACING
from loopax.ir.derivatives.pullback import PullbackRule, floats
from loopax.jax_backend.staging.linear import Function, Linear
from loopax.numerics.arrays import Array


def with_pullback(
    value: Callable[..., Sequence[Any]],
    pullback: Callable[[Any, Any, Any], Any],
    float_ins: Sequence[int],
    float_outs: Callable[[], Sequence[int]],
    refusals: Callable[[], Mapping[int, Exception]] = dict,
) -> Callable[..., list[Any]]:
    """Make ``value`` differentiable by ``pullback(inputs, outputs, cotangents)``.

    ``cotangents`` belong to the outputs at ``float_outs``, which is called after the value, and the results
    to the inputs at ``float_ins``, both in order. ``refusals`` maps inputs with an unknown cotangent to the
    errors raised when they are differentiated.
    """

    def run(inputs: Sequence[Array]) -> list[Any]:
        return [jnp.asarray(x) for x in value(*inputs)]

    def jvp(primals: Sequence[Array], tangents: Sequence[jax.Array | None]) -> Any:
        moving = [k for k in float_ins if tangents[k] is not None]
        refused = refusals()
        for k in moving:
            if k in refused:
                raise refused[k]
        outs = function(primals)
        places = float_outs()
        dots: list[Any] = [None] * len(places)
        if moving:
            dots = pushed(primals, outs, moving, [tangents[k] for k in moving])
        by_place = dict(zip(places, dots, strict=True))
        return outs, [by_place.get(k) for k in range(len(outs))]

    def pushed(
        inputs: Sequence[Array],
        outs: Sequence[Array],
        moving: Sequence[int],
        tangents: Sequence[jax.Array | None],
    ) -> list[Any]:
        n = len(inputs)
        shapes = [jax.ShapeDtypeStruct(outs[k].shape, outs[k].dtype) for k in float_outs()]

        def transpose(residuals: Sequence[Array], cotangents: Sequence[Array]) -> list[Any]:
            inputs = residuals[:n]
            cotangent_of = dict(
                zip(float_ins, pullback(inputs, residuals[n:], cotangents), strict=True)
            )
            return [
                jnp.broadcast_to(jnp.asarray(cotangent_of[k], inputs[k].dtype), inputs[k].shape)
                for k in moving
            ]

        def forward(residuals: Sequence[Array], tangents: Sequence[Array]) -> list[Any]:
            def pulled_back(*cotangents: jax.Array) -> list[Any]:
                return transpose(residuals, cotangents)

            try:
                return list(jax.linear_transpose(pulled_back, *shapes)(list(tangents)))
            except UnsupportedOpError:
                return _by_unit_vectors(pulled_back, shapes, tangents)
            except (NotImplementedError, AssertionError) as error:
                raise UnsupportedOpError(
                    "A pullback that is not linear in the cotangents, for example one that clips "
                    "them, is not a derivative: it has reverse mode, jax.grad and jax.vjp, but no "
                    "forward mode."
                ) from error

        return Linear(forward, transpose, forward, shapes)([*inputs, *outs], tangents)

    function = Function(run, jvp)
    return lambda *inputs: function(inputs)


def _by_unit_vectors(
    pulled_back: Callable[..., Sequence[jax.Array]], shapes: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """The transpose of ``pulled_back``, linear in arrays of these shapes, applied to ``tangents``."""

    def along(k: int, unit: jax.Array) -> Any:
        cotangents = [jnp.zeros(s.shape, s.dtype) for s in shapes]
        cotangents[k] = unit.reshape(shapes[k].shape).astype(shapes[k].dtype)
        pairs = zip(pulled_back(*cotangents), tangents, strict=True)
        return sum(jnp.vdot(row, t).astype(shapes[k].dtype) for row, t in pairs)

    return [
        jax.vmap(lambda unit, k=k: along(k, unit))(jnp.eye(s.size)).reshape(s.shape)
        for k, s in enumerate(shapes)
    ]


def refused_by(node: Apply, rule: PullbackRule) -> dict[int, Exception]:
    """The errors for inputs whose cotangents the op of a node does not know, by position."""
    what = f"{node.op} (class {type(node.op).__name__}), for {describe(node.outputs[-1])},"
    keep_out = "Keep it out of what is differentiated with `pytensor.gradient.disconnected_grad`."
    try:
        with TRACING:
            unknown = {k: g.type.why_null for k, g in rule.unknown.items()}
    except (NotImplementedError, AttributeError, NullTypeGradError) as error:
        refusal = UnsupportedOpError(
            f"{what} has no `pullback`, so it cannot be differentiated: {error or type(error).__name__}. "
            f"Write one. {keep_out}"
        )
        refusal.__cause__ = error
        return dict.fromkeys(floats(node.inputs), refusal)
    return {
        k: UnsupportedOpError(f"{what} has no derivative by its input {k}: {why} {keep_out}")
        for k, why in unknown.items()
    }
