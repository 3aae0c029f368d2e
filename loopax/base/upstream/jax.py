"""What loopax uses of JAX beyond `jax`, `jax.numpy`, `jax.lax` and `jax.tree`.

Our primitives, and the passes that read jaxprs, need `jax.extend.core` and `jax.interpreters`. These names
are public, but JAX does not promise to keep them. Tried on the releases of docs/install.md. What has moved
between releases is taken from where it is:

    InconclusiveDimensionOperation   jax.errors (0.10.1), jax.extend.core (0.10.0), jax.core (before)
    set_current_trace                jax.extend.core (0.10.0), jax.core (before)

Each of these lines can go when the floor of JAX in pyproject.toml is above the last release named in it.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax.core
import jax.errors
import jax.extend.core
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir, partial_eval

__all__ = [
    "ClosedJaxpr",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "Var",
    "ad",
    "batching",
    "jaxpr_as_fun",
    "mlir",
    "partial_eval",
    "set_current_trace",
]


def _moved(name: str) -> Any:
    with warnings.catch_warnings():
        # 0.9 says where it will be, not where it is
        warnings.simplefilter("ignore", DeprecationWarning)
        for module in (jax.errors, jax.extend.core, jax.core):
            if hasattr(module, name):
                return getattr(module, name)
    raise ImportError(f"JAX {jax.__version__} has no {name} in a module that loopax knows")


InconclusiveDimensionOperation = _moved("InconclusiveDimensionOperation")
set_current_trace = _moved("set_current_trace")
