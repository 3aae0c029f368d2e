"""What ``checkpoint="sqrt"`` saves, and what it costs: the gradient of a long scalar loop.

One state and no sequence, so that the memory is what reverse mode keeps and nothing else. Each step
is computed twice, which costs time; what it keeps fits into a cache, which saves some.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt

from benchmarks.comparisons import check_agreement
from benchmarks.measure import repeated_calls
from benchmarks.report import CHECKPOINT, Figure, Memory
from loopax import fori_loop, jaxify

STEPS = 1_000_000
LIMIT_TIME, LIMIT_MEMORY = 2.5, 1 / 100
ROUTES = ("jax.grad", "pytensor.grad")
# `a` is below 1, so that a million steps neither explode nor lose the first digits of the gradient.
ARGUMENTS = np.float64(0.3), np.float64(0.9)


def checkpoints(route: str, pairs: int) -> Figure:
    """Value and gradients by `route`, with checkpoints beside without: time, and temporary memory."""
    args = [jax.device_put(x) for x in ARGUMENTS]
    with_them, without = (gradients(route, c) for c in ("sqrt", None))
    check_agreement(with_them(*args), without(*args))
    memory = Memory(*(temporary(f, args) for f in (with_them, without)), limit=LIMIT_MEMORY)
    calls = repeated_calls(lambda: (gradients(route, "sqrt"), gradients(route, None)), args, pairs)
    return Figure(f"{STEPS} steps", route, CHECKPOINT, LIMIT_TIME, calls, memory)


def gradients(route: str, checkpoint: Any) -> Callable:
    s, a = pt.dscalars("s", "a")
    final = fori_loop(0, STEPS, lambda i, s: pt.tanh(a * s) + 0.1, s, checkpoint=checkpoint)
    if route == "pytensor.grad":
        return jax.jit(jaxify([s, a], (final, tuple(pytensor.grad(final, [s, a])))))
    return jax.jit(jax.value_and_grad(jaxify([s, a], final), (0, 1)))


def temporary(f: Any, args: Any) -> int:
    """Bytes of working memory beside arguments and results."""
    return int(f.lower(*args).compile().memory_analysis().temp_size_in_bytes)
