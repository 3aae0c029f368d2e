"""loopax: PyTensor programs as JAX programs."""

from loopax.ir.errors import (
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    StatefulFunctionError,
    UnsupportedOpError,
)
from loopax.jax_backend import JaxFunction, set_default_precision
from loopax.transpile import TracedFunction, jaxify

set_default_precision()

__all__ = [
    "DynamicShapeError",
    "JaxFunction",
    "LoopTypeError",
    "LoopaxError",
    "MissingInputError",
    "StatefulFunctionError",
    "TracedFunction",
    "UnsupportedOpError",
    "jaxify",
]
