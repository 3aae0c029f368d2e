"""What stands beside what: loopax and hand-written JAX, forward and with each kind of gradient.

Gradients are taken with respect to every input, data included. All functions are under `jax.jit`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytensor.tensor as pt

from benchmarks.measure import Pairs, first, interleaved, repeated
from benchmarks.programs import Program
from loopax import jaxify

LIMIT_FIRST = 1.5  # of the time to the first result
RTOL = 1e-8


class Comparison(NamedTuple):
    name: str
    limit: float  # of the time of a call
    graph: Callable[[Program], Any]  # what is there before any clock starts
    ours: Callable[[Any], Callable]  # of the graph: a jitted function
    theirs: Callable[[Program], Callable]


def value(program):
    return program.graph()


def value_and_pytensor_grad(program):
    inputs, out = program.graph()
    return inputs, (out, tuple(pt.grad(out, inputs)))


def transpiled(graph):
    return jax.jit(jaxify(*graph))


def transpiled_value_and_grad(graph):
    return jax.jit(jax.value_and_grad(jaxify(*graph), tuple(range(len(graph[0])))))


def hand(program):
    # A new function each time: JAX remembers what it has traced.
    return jax.jit(lambda *args: program.hand(*args))


def hand_value_and_grad(program):
    argnums = tuple(range(len(program.values())))
    return jax.jit(jax.value_and_grad(lambda *args: program.hand(*args), argnums))


COMPARISONS = (
    Comparison("forward", 1.05, value, transpiled, hand),
    Comparison("jax.grad", 1.05, value, transpiled_value_and_grad, hand_value_and_grad),
    Comparison("pytensor.grad", 1.1, value_and_pytensor_grad, transpiled, hand_value_and_grad),
)

# Hand-written JAX beside itself: how far from 1 a ratio can be for no reason.
CONTROL = Comparison("control", 1.0, lambda program: program, hand, hand)


def compare(program: Program, comparison: Comparison, pairs: int) -> tuple[Pairs, Pairs]:
    """Timings of one call, and of the time to the first result."""
    args = [jax.device_put(x) for x in program.values()]
    ours = comparison.ours(comparison.graph(program))
    theirs = comparison.theirs(program)
    check_agreement(ours(*args), theirs(*args))
    running = repeated(ours, theirs, args, pairs)

    # By now everything has been compiled once: what a process pays only once is not measured.
    def our_first() -> float:
        graph = comparison.graph(program)  # a new one: PyTensor keeps things on its graphs
        return first(lambda: comparison.ours(graph), args)

    def their_first() -> float:
        return first(lambda: comparison.theirs(program), args)

    return running, interleaved(our_first, their_first, pairs)


def check_agreement(ours: Any, theirs: Any) -> None:
    """Speed counts for nothing where the values or the structures differ."""

    def same(a: Any, b: Any) -> None:
        assert a.dtype == b.dtype == np.float64, (a.dtype, b.dtype)
        np.testing.assert_allclose(a, b, rtol=RTOL, strict=True)

    jax.tree.map(same, ours, theirs)
