"""loopax: PyTensor programs as JAX programs, and as native code."""

# ruff: noqa: E402
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from loopax.versions import check_before_imports

check_before_imports()

from loopax import lowering, numba_backend, pytensor_modes
from loopax.base.config import config
from loopax.base.errors import (
    ConvergenceError,
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    StatefulFunctionError,
    TimeLimitExceeded,
    UnsupportedOpError,
)
from loopax.base.time_limits import time_limit
from loopax.cache import clear_cache
from loopax.calling import SharedContext, StatefulFunction, TracedFunction, register_backend
from loopax.explaining import explain
from loopax.explanation import Explanation
from loopax.frontend.filters.hidden_markov import (
    HmmForward,
    HmmSmoother,
    hmm_forward,
    hmm_smoother,
)
from loopax.frontend.filters.kalman import KalmanFilter, kalman_filter
from loopax.frontend.filters.kalman_smoother import KalmanSmoother, kalman_smoother
from loopax.frontend.loops.branches import cond
from loopax.frontend.loops.lags import lag, lead
from loopax.frontend.loops.scan import scan
from loopax.frontend.loops.variants import filter, fori_loop, map, reduce, while_loop
from loopax.jacobians import hessian, jacobian
from loopax.jax_backend import JAX, JaxFunction, PaddedArray, StackedList, set_default_precision
from loopax.jax_functions import from_jax
from loopax.native_functions import native
from loopax.numba_backend import NUMBA, NumbaFunction
from loopax.products import hvp, jvp, vjp
from loopax.transforms import grad, value_and_grad, vmap
from loopax.transpile import jaxify

register_backend(JAX)
register_backend(NUMBA)
set_default_precision()
lowering.register_with_pytensor()
numba_backend.register_with_pytensor()
pytensor_modes.register_with_pytensor()


if TYPE_CHECKING:  # what is misspelt is an error to a checker
    from loopax import pymc as pymc

    __version__: str
else:

    def __getattr__(name: str) -> Any:
        if name == "Trace":
            warnings.warn(
                "loopax.Trace is called loopax.PaddedArray; the old name goes with loopax 0.3.",
                DeprecationWarning,
                stacklevel=2,
            )
            return PaddedArray
        if name == "__version__":
            return version("loopax")
        if name == "pymc":  # imported when it is asked for: it imports PyMC
            return import_module("loopax.pymc")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "pymc"])


__all__ = [
    "ConvergenceError",
    "DynamicShapeError",
    "Explanation",
    "HmmForward",
    "HmmSmoother",
    "JaxFunction",
    "KalmanFilter",
    "KalmanSmoother",
    "LoopTypeError",
    "LoopaxError",
    "MissingInputError",
    "NumbaFunction",
    "PaddedArray",
    "SharedContext",
    "StackedList",
    "StatefulFunction",
    "StatefulFunctionError",
    "TimeLimitExceeded",
    "TracedFunction",
    "UnsupportedOpError",
    "clear_cache",
    "cond",
    "config",
    "explain",
    "filter",
    "fori_loop",
    "from_jax",
    "grad",
    "hessian",
    "hmm_forward",
    "hmm_smoother",
    "hvp",
    "jacobian",
    "jaxify",
    "jvp",
    "kalman_filter",
    "kalman_smoother",
    "lag",
    "lead",
    "map",
    "native",
    "reduce",
    "scan",
    "time_limit",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
