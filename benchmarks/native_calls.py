"""What a call of a `NumbaFunction` costs beyond a call of the same function under ``numba.njit``.

The program adds a number of each argument, so that nearly all the time is the call itself. Ours checks
dtypes and ranks, and returns an array.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import njit

from benchmarks.measure import Pairs, pair_of_calls
from loopax import jaxify

LIMITS = {1: 1e-6, 2: 1e-6, 4: 1.5e-6}  # seconds more, by the number of arguments
KINDS = ("float", "array")

BY_HAND: dict[str, dict[int, Callable]] = {
    "float": {
        1: njit(lambda a: a + 0.0),
        2: njit(lambda a, b: a + b),
        4: njit(lambda a, b, c, d: a + b + c + d),
    },
    "array": {
        1: njit(lambda a: a[0]),
        2: njit(lambda a, b: a[0] + b[0]),
        4: njit(lambda a, b, c, d: a[0] + b[0] + c[0] + d[0]),
    },
}


def native_call(kind: str, count: int, pairs: int) -> Pairs:
    """Timings of one call with ``count`` arguments, ours and of Numba's dispatcher."""
    args: list[Any] = [float(k + 1) for k in range(count)]
    variables = [pt.dscalar(f"x{k}") for k in range(count)]
    terms: list[Any] = variables
    if kind == "array":
        args = [np.array([x, 0.0]) for x in args]
        variables = [pt.dvector(f"x{k}") for k in range(count)]
        terms = [x[0] for x in variables]
    f = jaxify(variables, sum(terms, start=pt.constant(np.float64(0))), backend="numba")
    plain = BY_HAND[kind][count]
    assert f(*args) == plain(*args) == count * (count + 1) / 2
    seconds = [pair_of_calls(f, plain, args, lambda result: None) for _ in range(pairs)]
    return Pairs(*np.transpose(seconds))
