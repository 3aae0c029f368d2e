"""Errors about lengths known only when a program runs: NaN, and a flag.

Two masks may have unequally many places, a trace no row of which there is a maximum. PyTensor raises. A
program of JAX gives no numbers, and under a transformation of the caller's that is all. A direct call reads
the flag, and does the call once more with known lengths, where whatever is wrong is raised as it is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from loopax.base.errors import DynamicShapeError
from loopax.jax_backend.staging.checked import Failure, checked
from loopax.jax_backend.staging.context import Context
from loopax.numerics.no_number import or_no_number


class IllegalLengths(DynamicShapeError):
    """Lengths that only a run tells do not fit one another, or an index is beyond one."""


_ILLEGAL = Failure(IllegalLengths, "lengths that are known only when the program runs do not fit")


def or_refused(context: Context, ok: ArrayLike, x: jax.Array) -> jax.Array:
    """``x`` where ``ok``, and no number elsewhere, of which a direct call is told."""
    result = or_no_number(ok, x)
    return result if ok is True else told(context, ok, result)


def told(context: Context, ok: ArrayLike, x: jax.Array) -> jax.Array:
    """``x``, and in a direct call that leaves lengths open a flag where ``ok`` is false."""
    if not (context.open_lengths and context.checks == "flag"):
        return x
    context.flagged.add(_ILLEGAL)
    return checked(x, jnp.all(jnp.asarray(ok)), _ILLEGAL)
