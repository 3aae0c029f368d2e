"""Types of the arrays that functions for JAX accept."""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

# NumPy where the values are known while JAX traces, JAX elsewhere.
Array: TypeAlias = jax.Array | np.ndarray
Arrays: TypeAlias = tuple[jax.Array, ...]
Shape: TypeAlias = tuple[int, ...]


def widest_float() -> np.dtype:
    """float64, or float32 in JAX's 32-bit mode."""
    return jnp.result_type(float)
