"""What a direct call of a `JaxFunction` costs beyond a call of `jax.jit` of the same function.

The arguments are scalars on the device and the program is their sum, so that nearly all the time is
the call itself.
"""

import jax
import numpy as np
import pytensor.tensor as pt

from benchmarks.measure import Pairs, repeated
from loopax import jaxify

COUNTS = (1, 2, 4, 8)  # of arguments
LIMIT = 10e-6  # seconds more than jax.jit
# Batches of about a millisecond: short, so that most are undisturbed, and many.
BATCHES, CALLS = 301, 100


def call_overhead(count: int) -> Pairs:
    """Timings of one call with `count` arguments, ours and under `jax.jit`."""
    variables = [pt.dscalar(f"x{k}") for k in range(count)]
    f = jaxify(variables, pt.add(*variables) if count > 1 else -variables[0])
    args = [jax.device_put(np.float64(k + 1)) for k in range(count)]
    plain = jax.jit(f)
    expected = count * (count + 1) / 2 if count > 1 else -1.0
    assert f(*args) == plain(*args) == expected
    return repeated(f, plain, args, BATCHES, CALLS)
