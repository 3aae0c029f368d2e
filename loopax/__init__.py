"""loopax: PyTensor programs as JAX programs, and as native code."""

# ruff: noqa: E402
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from loopax.versions import check_before_imports

check_before_imports()

from loopax import kernels, lowering, numba_backend, pytensor_modes  # noqa: F401  (kernels registers a form)
from loopax.base.config import config
from loopax.base.errors import (
    ConvergenceError,
    DynamicShapeError,
    LoopaxError,
    LoopTypeError,
    MissingInputError,
    NonFiniteError,
    StatefulFunctionError,
    TimeLimitExceeded,
    UnsupportedOpError,
    WrongGradientWarning,
)
from loopax.base.extensions import installed_extensions, missing
from loopax.base.time_limits import time_limit
from loopax.cache import clear_cache
from loopax.calling import SharedContext, StatefulFunction, TracedFunction, register_backend
from loopax.comparing import compare
from loopax.comparison import Comparison
from loopax.diagnosing import diagnose
from loopax.diagnosis import Diagnosis
from loopax.explaining import explain
from loopax.explanation import Explanation, Profile
from loopax.frontend.loops.branches import cond
from loopax.frontend.loops.for_and_while import fori_loop, while_loop
from loopax.frontend.loops.lags import lag, lead
from loopax.frontend.loops.map_reduce import filter, map, reduce
from loopax.frontend.loops.scan import scan
from loopax.frontend.watching import breakpoint_if, watch
from loopax.jacobians import hessian, jacobian
from loopax.jax_backend import JAX, JaxFunction, PaddedArray, StackedList, set_default_precision
from loopax.jax_functions import from_jax
from loopax.native_functions import native
from loopax.numba_backend import NUMBA, NumbaFunction
from loopax.products import hvp, jvp, vjp
from loopax.profiling import profile
from loopax.transforms import grad, value_and_grad, vmap
from loopax.transpile import jaxify
from loopax.watching import watched

register_backend(JAX)
register_backend(NUMBA)
set_default_precision()
lowering.register_with_pytensor()
numba_backend.register_with_pytensor()
pytensor_modes.register_with_pytensor()


# Names of extensions, by the extension. A name is imported when it is asked for.
_EXTENSION_NAMES = {
    "HmmForward": "parallel",
    "HmmSmoother": "parallel",
    "KalmanFilter": "parallel",
    "KalmanSmoother": "parallel",
    "hmm_forward": "parallel",
    "hmm_smoother": "parallel",
    "kalman_filter": "parallel",
    "kalman_smoother": "parallel",
}

if TYPE_CHECKING:  # what is misspelt is an error to a checker
    from loopax import pymc as pymc
    from loopax.extensions.parallel.filters.hidden_markov import HmmForward as HmmForward
    from loopax.extensions.parallel.filters.hidden_markov import HmmSmoother as HmmSmoother
    from loopax.extensions.parallel.filters.hidden_markov import hmm_forward as hmm_forward
    from loopax.extensions.parallel.filters.hidden_markov import hmm_smoother as hmm_smoother
    from loopax.extensions.parallel.filters.kalman import KalmanFilter as KalmanFilter
    from loopax.extensions.parallel.filters.kalman import kalman_filter as kalman_filter
    from loopax.extensions.parallel.filters.kalman_smoother import KalmanSmoother as KalmanSmoother
    from loopax.extensions.parallel.filters.kalman_smoother import (
        kalman_smoother as kalman_smoother,
    )

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
        if name in _EXTENSION_NAMES:
            record = installed_extensions().get(_EXTENSION_NAMES[name])
            if record is None:
                request = f"loopax.{name}"
                raise AttributeError(
                    missing(_EXTENSION_NAMES[name], request, "write the recursion with loopax.scan")
                )
            return record.part(name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "pymc"])


__all__ = [
    "Comparison",
    "ConvergenceError",
    "Diagnosis",
    "DynamicShapeError",
    "Explanation",
    "JaxFunction",
    "LoopTypeError",
    "LoopaxError",
    "MissingInputError",
    "NonFiniteError",
    "NumbaFunction",
    "PaddedArray",
    "Profile",
    "SharedContext",
    "StackedList",
    "StatefulFunction",
    "StatefulFunctionError",
    "TimeLimitExceeded",
    "TracedFunction",
    "UnsupportedOpError",
    "WrongGradientWarning",
    "breakpoint_if",
    "clear_cache",
    "compare",
    "cond",
    "config",
    "diagnose",
    "explain",
    "filter",
    "fori_loop",
    "from_jax",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jaxify",
    "jvp",
    "lag",
    "lead",
    "map",
    "native",
    "profile",
    "reduce",
    "scan",
    "time_limit",
    "value_and_grad",
    "vjp",
    "vmap",
    "watch",
    "watched",
    "while_loop",
]
__all__ += [
    name for name, extension in _EXTENSION_NAMES.items() if extension in installed_extensions()
]
