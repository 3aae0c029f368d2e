"""Functions in plain JAX as `loopax.native` runs them beside ``jax.jit`` of the same functions.

Value, and value and gradient, of those of `jax_hand` that have a reverse mode.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels import ATOL, HAND, RTOL, transformed
from benchmarks.measure import repeated_calls
from benchmarks.native import PROGRAMS
from benchmarks.report import JAX_FUNCTIONS, Figure
from loopax import native

LIMITS = {"forward": 0.5, "gradient": 0.5}


def native_functions(pairs: int, names: Any, say: Callable[[str], None]) -> Iterator[Figure]:
    for name in names or PROGRAMS:
        p = PROGRAMS[name][0]
        inputs, _ = p.graph()
        wrt = tuple(k for k, v in enumerate(inputs) if v.name in p.wrt)
        args = [jnp.asarray(x) for x in p.values()]
        for comparison, limit in LIMITS.items():
            say(f"native functions, {p.title}, {comparison}")
            f = HAND[name].value if comparison == "forward" else HAND[name].derivable
            measured = _compared(f, args, comparison, wrt, pairs)
            yield Figure(p.title, comparison, JAX_FUNCTIONS, limit, measured)


def _compared(
    f: Callable, args: list[Any], comparison: str, wrt: tuple[int, ...], pairs: int
) -> Any:
    def ours() -> Callable:
        return jax.jit(transformed(native(f), comparison, wrt))

    def theirs() -> Callable:
        return jax.jit(transformed(f, comparison, wrt))

    expected = theirs()(*args)
    atol = ATOL * max(np.max(np.abs(x)) for x in expected)
    for x, y in zip(ours()(*args), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=RTOL, atol=atol)
    return repeated_calls(lambda: (ours(), theirs()), args, pairs)
