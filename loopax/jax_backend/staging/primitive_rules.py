"""Types of the arguments that JAX passes to the rules of a primitive, and steps that rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from loopax.base.upstream.jax import JaxprEqn, Var, ad

# Tangents in a JVP, or cotangents in a transpose: a `Zero` has no array.
Tangents: TypeAlias = Sequence[jax.Array | ad.Zero]
# An operand in a transpose: that in which the primitive is linear has no value.
Operand: TypeAlias = jax.Array | ad.UndefinedPrimal
# The axis of a batch in each operand; None for an operand without it.
BatchAxes: TypeAlias = Sequence[int | None]
# For each axis of a batch, the first one first, which operands have it, in front of their own axes.
Batch: TypeAlias = tuple[tuple[bool, ...], ...]


def with_axis_in_front(args: Sequence[jax.Array], axes: BatchAxes) -> list[jax.Array]:
    return [x if a is None else jnp.moveaxis(x, a, 0) for x, a in zip(args, axes, strict=True)]


def axes_before(batch: Batch, level: int, k: int) -> int:
    """The number of axes of the batch before ``level`` that operand ``k`` has."""
    return sum(has_axis[k] for has_axis in batch[:level])


def over_batch(function: Callable[..., Any], batch: Batch) -> Callable[..., Any]:
    """``function`` of one element, for operands with the axes of the batch."""
    for has_axis in reversed(batch):
        if any(has_axis):
            function = jax.vmap(function, in_axes=tuple(0 if has else None for has in has_axis))
    return function


def division_for_checkpoint(
    eqn: JaxprEqn, instantiated: Sequence[bool], first: JaxprEqn | None, is_later: Sequence[bool]
) -> Any:
    """The answer of a rule by which ``jax.checkpoint`` divides ``eqn``, as it computes values again.

    It is the equation for the ``first`` run, the one for later, which is ``eqn``, the outputs that only the
    latter gives, those that it gives at all, and the inputs to instantiate. Values that the policy of the
    checkpoint saves are computed again all the same.
    """
    missing = [
        v for v, has in zip(eqn.invars, instantiated, strict=True) if isinstance(v, Var) and not has
    ]
    return first, eqn, list(is_later), [True] * len(eqn.outvars), missing
