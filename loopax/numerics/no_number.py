"""Values that stand for an error which cannot be raised while a program of JAX runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def no_number(dtype: Any) -> Any:
    """What stands for an error that cannot be raised while a program runs.

    NaN; the least integer, or the largest of an unsigned type, where the least is a plausible 0.
    """
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.asarray(np.nan, dtype=dtype)
    if dtype.kind == "b":
        return np.asarray(False)
    limits = jnp.iinfo(dtype)
    return np.asarray(limits.max if dtype.kind == "u" else limits.min, dtype=dtype)


def is_no_number(x: Any) -> Any:
    """Where an array may be `no_number`; None of bools, keys and what is no array."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or jnp.issubdtype(dtype, jax.dtypes.extended) or jnp.issubdtype(dtype, bool):
        return None
    return jnp.isnan(x) if jnp.issubdtype(dtype, jnp.inexact) else x == no_number(np.dtype(dtype))


def or_no_number(ok: Any, x: Any) -> Any:
    """``x`` where ``ok``, and no number elsewhere."""
    return jnp.where(ok, x, no_number(x.dtype))
