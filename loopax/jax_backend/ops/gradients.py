"""Ops that affect only a derivative, such as ``pytensor.gradient.disconnected_grad``.

PyTensor's rewrites remove them once its gradient is taken. Here they stay, because JAX may take the
derivative later.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from pytensor.gradient import DisconnectedGrad, GradClip, GradScale, UndefinedGrad, ZeroGrad

from loopax.base.errors import describe
from loopax.jax_backend.staging.callback import without_derivative
from loopax.jax_backend.staging.evaluate import Site
from loopax.jax_backend.staging.registry import rule
from loopax.numerics.arrays import Array


@rule(DisconnectedGrad, ZeroGrad)
def stop(site: Site, x: object) -> Any:
    return jax.lax.stop_gradient(x)


@rule(UndefinedGrad)
def undefined(site: Site, x: Array) -> jax.Array:
    """Pass the value through; raise if it is differentiated, as PyTensor does."""
    message = (
        f"The gradient of {describe(site.out)} is declared undefined, by undefined_grad. Keep it out of "
        "what is differentiated with `pytensor.gradient.disconnected_grad`."
    )
    return without_derivative(lambda x: x, message)(x)


@rule(GradClip)
def clip(site: Site, x: Array) -> Any:
    """Clip the cotangent; that is not linear, so there is no forward mode."""
    low, high = site.op.clip_lower_bound, site.op.clip_upper_bound
    function = jax.custom_vjp(lambda x: x)
    function.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, low, high),))
    return function(x)


@rule(GradScale)
def scale(site: Site, x: Array) -> Any:
    function = jax.custom_jvp(lambda x: x)
    function.defjvps(lambda t, out, x: site.op.multiplier * t)
    return function(x)
