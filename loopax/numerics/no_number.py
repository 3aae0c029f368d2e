"""Values in place of errors, which a running JAX program cannot raise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from loopax.numerics.arrays import Array


def no_number(dtype: np.dtype) -> Any:
    """The value that replaces an error, which cannot be raised while a program runs.

    It is NaN; or the least integer; or the largest integer of an unsigned type, whose least one is a
    plausible 0.
    """
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(np.nan, dtype=dtype)
    if dtype.kind == "b":
        return np.asarray(False)
    limits = jnp.iinfo(dtype)
    return np.asarray(limits.max if dtype.kind == "u" else limits.min, dtype=dtype)


def is_no_number(x: Any) -> Any:
    """Flags of the entries that may be `no_number`; None for bools, keys and values without a dtype."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or jnp.issubdtype(dtype, jax.dtypes.extended) or jnp.issubdtype(dtype, bool):
        return None
    return jnp.isnan(x) if jnp.issubdtype(dtype, jnp.inexact) else x == no_number(np.dtype(dtype))


def or_no_number(ok: ArrayLike, x: Array) -> jax.Array:
    """Return ``x`` where ``ok``, else `no_number`."""
    return jnp.where(ok, x, no_number(x.dtype))
