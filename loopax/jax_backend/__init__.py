"""IR -> JAX: two-stage evaluation, leaf ops, loops, the callable."""

from loopax.jax_backend.values.x64 import import_dispatch, set_default_precision

import_dispatch()  # before anything below imports PyTensor's registry, which changes JAX's precision

from loopax.jax_backend import ops  # noqa: E402  (they register their rules)
from loopax.jax_backend.callable.backend import JAX  # noqa: E402
from loopax.jax_backend.callable.context import JaxContext  # noqa: E402
from loopax.jax_backend.callable.function import JaxFunction  # noqa: E402
from loopax.jax_backend.callable.stages import JaxTracedFunction  # noqa: E402
from loopax.jax_backend.control_flow import calls, conditionals, loops  # noqa: E402  (these as well)
from loopax.jax_backend.jax_op import JaxOp  # noqa: E402
from loopax.jax_backend.native_call.function import NativeFunction  # noqa: E402
from loopax.jax_backend.parallel import associative  # noqa: E402
from loopax.jax_backend.pytensor_mode.conversions import register as register_with_pytensor  # noqa: E402
from loopax.jax_backend.staging import leaf  # noqa: E402
from loopax.jax_backend.values.lists import StackedList  # noqa: E402
from loopax.jax_backend.values.padded_array import PaddedArray  # noqa: E402

register_with_pytensor()

__all__ = [
    "JAX",
    "JaxContext",
    "JaxFunction",
    "JaxOp",
    "JaxTracedFunction",
    "NativeFunction",
    "PaddedArray",
    "StackedList",
    "associative",
    "calls",
    "conditionals",
    "leaf",
    "loops",
    "ops",
    "set_default_precision",
]
