"""Errors about lengths known only at run time: NaN, and a flag.

Two masks may have different numbers of true elements, or a maximum be taken of a trace without rows.
PyTensor raises. A JAX program returns `no_number`, and under the caller's transformation that is all. A
direct call reads the flag, and repeats the call with known lengths, which raises the actual error.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from loopax.base.errors import DynamicShapeError
from loopax.jax_backend.staging.checked import Failure, checked
from loopax.jax_backend.staging.context import Context
from loopax.jax_backend.values.padded_array import PaddedArray
from loopax.numerics.no_number import or_no_number


class IllegalLengths(DynamicShapeError):
    """Raised if lengths known only at run time do not match, or an index exceeds one."""


_ILLEGAL = Failure(IllegalLengths, "lengths that are known only when the program runs do not fit")


def or_refused(context: Context, ok: ArrayLike, x: jax.Array) -> jax.Array:
    """Return ``x`` where ``ok``, else `no_number`; a direct call learns of it."""
    result = or_no_number(ok, x)
    return result if ok is True else told(context, ok, result)


def refused_rows(context: Context, ok: ArrayLike, x: PaddedArray) -> PaddedArray:
    """Return ``x`` where ``ok``; else all rows are `no_number`, and all count.

    A refused array without rows would go unseen: a sum over none is 0.
    """
    if ok is True:
        return x
    x = x.fitted(max(x.bound, 1))
    length = jnp.where(jnp.asarray(ok), x.length, x.bound)
    return PaddedArray(or_refused(context, ok, x.data), length, x.axis)


def told(context: Context, ok: ArrayLike, x: jax.Array) -> jax.Array:
    """Return ``x``; in a direct call with open lengths, set a flag if ``ok`` is false."""
    if not (context.open_lengths and context.checks == "flag"):
        return x
    context.flagged.add(_ILLEGAL)
    return checked(x, jnp.all(jnp.asarray(ok)), _ILLEGAL)
