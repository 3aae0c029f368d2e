"""Traced indices as JAX may cut them to 32 bits.

JAX casts an index to int32 wherever the length of the axis fits there, and its bounds are checked only
afterwards: ``x[2**32]`` would be ``x[0]``, and an unsigned ``2**64 - 1`` the last element.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_INT32 = np.iinfo(np.int32).max


def keep_outside(at: jax.Array, length: Any, below: int = 1) -> jax.Array:
    """``at``, clipped in its own dtype to just outside of an axis of ``length``.

    What is out of range stays so; ``below`` is how many negative values before the first index are left.
    An index of a dtype that int32 holds is returned as it is.
    """
    if at.dtype == bool or np.iinfo(at.dtype).max <= _INT32:
        return at
    high = (
        np.asarray(length, at.dtype) if isinstance(length, int) else jnp.asarray(length, at.dtype)
    )
    at = jnp.minimum(at, high)
    return at if at.dtype.kind == "u" else jnp.maximum(at, -high - max(below, 1))
