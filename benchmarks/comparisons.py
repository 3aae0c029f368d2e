"""What stands beside what: loopax and hand-written JAX, forward and with each kind of gradient.

Gradients are taken with respect to every input, data included. All functions are under `jax.jit`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytensor.tensor as pt

from benchmarks.measure import Pairs, first, in_turns, repeated_calls
from benchmarks.programs import Program
from loopax import jaxify

RTOL = 1e-8


class Comparison(NamedTuple):
    name: str
    graph: Callable[[Program], Any]  # what is there before any clock starts
    ours: Callable[[Any], Callable]  # of the graph: a jitted function
    theirs: Callable[[Program], Callable]
    limit_call: float | None  # of the ratio; None where nothing is claimed
    limit_first: float | None


def value(program):
    return program.graph()


def value_and_pytensor_grad(program):
    inputs, out = program.graph()
    return inputs, (out, tuple(pt.grad(out, inputs, disconnected_inputs="ignore")))


def transpiled(graph):
    return jax.jit(jaxify(*graph))


def transpiled_value_and_grad(graph):
    inputs, out = graph
    return jax.jit(jax.value_and_grad(jaxify(inputs, out), tuple(range(len(inputs)))))


def hand(program):
    # A new function each time: JAX remembers what it has traced.
    return jax.jit(lambda *args: program.hand(*args))


def hand_value_and_grad(program):
    argnums = tuple(range(len(program.values())))
    return jax.jit(jax.value_and_grad(lambda *args: program.hand(*args), argnums))


COMPARISONS = (
    Comparison("forward", value, transpiled, hand, 1.05, 1.5),
    Comparison("jax.grad", value, transpiled_value_and_grad, hand_value_and_grad, 1.05, 1.5),
    Comparison("pytensor.grad", value_and_pytensor_grad, transpiled, hand_value_and_grad, 1.1, 1.5),
)

# Hand-written JAX beside itself: how far from 1 a ratio can be for no reason.
CONTROL = Comparison("control", lambda program: program, hand, hand, None, None)


def compare(program: Program, comparison: Comparison, pairs: int) -> tuple[Pairs, Pairs]:
    """Timings of one call, and of the time to the first result."""
    args = [jax.device_put(x) for x in program.values()]

    def make() -> tuple[Callable, Callable]:
        return comparison.ours(comparison.graph(program)), comparison.theirs(program)

    def our_first() -> float:
        graph = comparison.graph(program)
        return first(lambda: comparison.ours(graph), args)

    def their_first() -> float:
        return first(lambda: comparison.theirs(program), args)

    ours, theirs = make()
    check_agreement(ours(*args), theirs(*args))
    calls = repeated_calls(make, args, pairs)
    # Last, when everything has been compiled before: what a process pays only once is not counted.
    return calls, in_turns(our_first, their_first, pairs)


def check_agreement(ours: Any, theirs: Any) -> None:
    """Speed counts for nothing where values or structures differ."""

    def same(a: Any, b: Any) -> None:
        assert a.dtype == b.dtype == np.float64, (a.dtype, b.dtype)
        np.testing.assert_allclose(a, b, rtol=RTOL, strict=True)

    jax.tree.map(same, ours, theirs)
