"""Types of the arrays that functions for JAX take."""

from __future__ import annotations

from typing import TypeAlias

import jax
import numpy as np

# NumPy where the values are known while JAX traces, JAX elsewhere.
Array: TypeAlias = jax.Array | np.ndarray
