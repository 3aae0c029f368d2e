"""IR -> JAX: two-stage evaluation, leaf ops, loops, the callable."""

from loopax.jax_backend.x64 import import_dispatch, set_default_precision

import_dispatch()  # before anything below imports PyTensor's registry, which changes JAX's precision

from loopax.jax_backend import calls, conditionals, leaf, loops, ops  # noqa: E402  (they register their rules)
from loopax.jax_backend.backend import JAX  # noqa: E402
from loopax.jax_backend.context import JaxContext  # noqa: E402
from loopax.jax_backend.function import JaxFunction  # noqa: E402
from loopax.jax_backend.pytensor_mode import register as register_with_pytensor  # noqa: E402
from loopax.jax_backend.trace import Trace  # noqa: E402

register_with_pytensor()

__all__ = [
    "JAX",
    "JaxContext",
    "JaxFunction",
    "Trace",
    "calls",
    "conditionals",
    "leaf",
    "loops",
    "ops",
    "set_default_precision",
]
