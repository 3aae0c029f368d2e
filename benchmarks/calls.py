"""What a direct call of a `JaxFunction` costs beyond a call of `jax.jit` of the same function.

The arguments are scalars on the device and the program is their sum, so that nearly all the time is
the call itself.
"""

from collections.abc import Callable

import jax
import numpy as np
import pytensor.tensor as pt

from benchmarks.measure import Pairs, repeated_calls
from loopax import jaxify

COUNTS = (1, 2, 4, 8)  # of arguments
LIMIT = 10e-6  # seconds more than jax.jit


def call_overhead(count: int, pairs: int) -> Pairs:
    """Timings of one call with `count` arguments, ours and under `jax.jit`."""
    args = [jax.device_put(np.float64(k + 1)) for k in range(count)]

    def make() -> tuple[Callable, Callable]:
        variables = [pt.dscalar(f"x{k}") for k in range(count)]
        f = jaxify(variables, sum(variables, start=pt.constant(np.float64(0))))
        return f, jax.jit(f)

    f, plain = make()
    assert f(*args) == plain(*args) == count * (count + 1) / 2
    return repeated_calls(make, args, pairs)
