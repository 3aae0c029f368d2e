"""What JAX has moved from one public module to another, from wherever it is.

    InconclusiveDimensionOperation   jax.errors (0.10.1), jax.extend.core (0.10.0), jax.core (before)
    set_current_trace                jax.extend.core (0.10.0), jax.core (before)

Each line can go when the floor of JAX in pyproject.toml is above the last release named in it.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax.core
import jax.errors
import jax.extend.core


def _found(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # 0.9 says where it will be, not where it is
        for module in (jax.errors, jax.extend.core, jax.core):
            if hasattr(module, name):
                return getattr(module, name)
    raise ImportError(f"JAX {jax.__version__} has no {name} in a module that loopax knows")


InconclusiveDimensionOperation = _found("InconclusiveDimensionOperation")
set_current_trace = _found("set_current_trace")
