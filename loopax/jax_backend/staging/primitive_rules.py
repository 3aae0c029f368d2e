"""Types of the arguments that JAX passes to the rules of a primitive, and helpers of these rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from loopax.base.upstream.jax import JaxprEqn, Var, ad

# Tangents in a JVP, or cotangents in a transpose: a `Zero` has no array.
Tangents: TypeAlias = Sequence[jax.Array | ad.Zero]
# An operand in a transpose: an operand in which the primitive is linear has no value.
Operand: TypeAlias = jax.Array | ad.UndefinedPrimal
# The batch axis of each operand; None for an operand without one.
BatchAxes: TypeAlias = Sequence[int | None]
# For each batch axis, outermost first: the operands that have it. These axes come before all others.
Batch: TypeAlias = tuple[tuple[bool, ...], ...]


def with_axis_in_front(args: Sequence[jax.Array], axes: BatchAxes) -> list[jax.Array]:
    return [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(args, axes, strict=True)]


def axes_before(batch: Batch, level: int, k: int) -> int:
    """The number of batch axes before ``level`` that operand ``k`` has."""
    return sum(has_axis[k] for has_axis in batch[:level])


def over_batch(function: Callable[..., Any], batch: Batch) -> Callable[..., Any]:
    """Map ``function``, of one element, over operands with the axes of the batch."""
    for has_axis in reversed(batch):
        if any(has_axis):
            function = jax.vmap(function, in_axes=tuple(0 if has else None for has in has_axis))
    return function


def division_for_checkpoint(
    eqn: JaxprEqn, instantiated: Sequence[bool], first: JaxprEqn | None, is_later: Sequence[bool]
) -> Any:
    """The answer of the rule by which ``jax.checkpoint`` splits ``eqn``, whose values are recomputed.

    It has the equation for the ``first`` run, the later equation, which is ``eqn``, flags for the outputs
    that only the latter computes, flags for all its outputs, and the inputs to instantiate. Values that the
    policy of the checkpoint saves are recomputed all the same.
    """
    missing = [
        v for v, has in zip(eqn.invars, instantiated, strict=True) if isinstance(v, Var) and not has
    ]
    return first, eqn, list(is_later), [True] * len(eqn.outvars), missing
