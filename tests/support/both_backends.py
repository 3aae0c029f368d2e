"""A program in JAX, in native code run as Python, and in PyTensor: one result."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytensor

from loopax import jaxify
from tests.numba_backend.interpreted import InterpretedFunction
from tests.support.compare import FAST_RUN

# Without C it leaves the first of the numbers that it adds up as it is, where it was to take their exp.
IN_PYTENSOR = FAST_RUN.excluding("local_careduce_fusion")
NATIVE = InterpretedFunction.backend_name  # native code that nothing has compiled


def in_both(
    inputs: Sequence[Any],
    outputs: Any,
    values: Sequence[Any],
    expected: Any = None,
    *,
    rtol: float = 1e-10,
    pytensor_mode: Any = IN_PYTENSOR,
) -> Any:
    """The value of ``outputs``, a variable or a list, in which all agree, ``expected`` where it is given.

    JAX's checks raise. Without a ``pytensor_mode``, PyTensor is left out: for what only we have right.
    """
    actual = [
        jaxify(inputs, outputs, checks="raise")(*values),
        jaxify(inputs, outputs, backend=NATIVE)(*values),
    ]
    if pytensor_mode is not None:
        run = pytensor.function(list(inputs), outputs, mode=pytensor_mode, on_unused_input="ignore")
        actual.append(run(*values))
    if expected is not None:
        actual.append(expected)
    for other in actual[1:]:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13), actual[0], other
        )
    return actual[0]
