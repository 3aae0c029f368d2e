"""Functions in plain JAX as `loopax.native` runs them beside ``jax.jit`` of the same functions.

Value, and value and gradient: of those of `jax_hand`, and of `jax_functions` with the time to the first
result.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.jax_functions import FUNCTIONS
from benchmarks.kernels import HAND, beside, transformed
from benchmarks.measure import Pairs, first, in_turns, own_cache
from benchmarks.native import PROGRAMS
from benchmarks.report import JAX_FIRST, JAX_FUNCTIONS, Figure
from loopax import native

LIMITS = {"forward": 0.5, "gradient": 0.5}
_WORST = 1.05  # of any function; half of the time is the limit of the median
_SOON = 1.5  # seconds more to the first result


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


def jax_functions(pairs: int, names: Any, say: Callable[[str], None]) -> Iterator[Figure]:
    for name in names or FUNCTIONS:
        p = FUNCTIONS[name]
        args = [jnp.asarray(x) for x in p.args]
        comparisons = [*LIMITS] if p.is_differentiable else ["forward"]
        # Before all calls, and once: the process keeps native code, which no cache of JAX's is.
        firsts = {c: _first(p.f, args, c) for c in comparisons}
        for comparison in comparisons:
            say(f"jax functions, {name}, {comparison}")
            measured = _compared(p.f, args, comparison, (0,), pairs)
            yield Figure(name, comparison, JAX_FUNCTIONS, _WORST, measured)
            yield Figure(name, comparison, JAX_FIRST, _SOON, firsts[comparison])


def _first(f: Callable, args: list[Any], comparison: str) -> Pairs:
    def timed(g: Callable) -> Callable[[], float]:
        return lambda: first(lambda: jax.jit(transformed(g(f), comparison, (0,))), args)

    with own_cache():
        return in_turns(timed(native), timed(lambda f: f), 1)


def _compared(
    f: Callable, args: list[Any], comparison: str, wrt: tuple[int, ...], pairs: int
) -> Any:
    with own_cache():
        return beside(lambda: native(f), f, args, comparison, wrt, pairs)
