"""Programs as one native function beside what an expert writes by hand with Numba.

Both sides are called from Python, on NumPy arrays and floats. The yardstick is the hand-written
*forward* pass, for the value and for the value with its gradients: nobody writes the latter by hand.
Where a program has small matrices it is measured twice, with their shapes declared and without.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytensor

from benchmarks import native_hand as hand
from benchmarks import native_programs as programs
from benchmarks.measure import Pairs, pair_of_calls
from benchmarks.programs import (
    ar2_graph,
    ar2_values,
    garch_graph,
    garch_values,
    kalman_graph,
    kalman_values,
)
from benchmarks.report import NATIVE, Figure
from loopax import jaxify, value_and_grad

RTOL, RTOL_SLOPE, STEP = 1e-9, 1e-5, 1e-6
FORWARD, GRADIENT = 1.5, 4.0  # of each program; the limits of the medians over them are in `report`


class Native(NamedTuple):
    title: str  # with the number of steps
    graph: Callable[[], tuple[list, Any]]
    wrt: tuple[str, ...]  # the inputs of the gradients
    values: Callable[[], list]
    hand: Callable[..., float]
    counts: bool = True  # to the limits: the eight programs


class Comparison(NamedTuple):
    name: str
    make: Callable[[Native], Callable]
    limit: float | None  # of each program


def both(
    title: str, graph: Callable, wrt: tuple[str, ...], values: Callable, by_hand: Callable
) -> list:
    """With declared shapes, and without."""
    return [
        Native(title, partial(graph, True), wrt, values, by_hand),
        Native(f"{title} *", partial(graph, False), wrt, values, by_hand),
    ]


def kalman(static: bool) -> tuple[list, Any]:
    return kalman_graph(3 if static else None)


_HMM, _KALMAN = ("start", "A", "mean"), ("T", "Q", "H")
PROGRAMS = {
    "garch": [Native("GARCH 2000", garch_graph, ("w", "a", "b", "s2_0"), garch_values, hand.garch)],
    "ar2": [Native("AR(2) 1000", ar2_graph, ("p1", "p2"), ar2_values, hand.ar2)],
    "hmm": both("HMM 500", programs.hmm, _HMM, programs.hmm_values, hand.hmm),
    "hmm_log": both("HMM 500, logs", programs.hmm_log, _HMM, programs.hmm_values, hand.hmm_log),
    "kalman": [
        *both("Kalman 200", kalman, _KALMAN, kalman_values, hand.kalman_in_loops),
        Native("beside arrays", partial(kalman, True), _KALMAN, kalman_values, hand.kalman, False),
    ],
    "rnn": both("RNN 100", programs.rnn, ("U", "W", "b"), programs.rnn_values, hand.rnn),
    "runge_kutta": [
        Native(
            "RK4 500",
            programs.runge_kutta,
            ("a", "b", "c", "d", "u0", "v0"),
            programs.runge_kutta_values,
            hand.runge_kutta,
        )
    ],
    "nested": [
        Native(
            "nested 100x20", programs.nested, ("k", "c", "z0"), programs.nested_values, hand.nested
        )
    ],
    # One takes as long as the call of it: it shows what a call costs.
    "newton": [
        Native("Newton", programs.newton, ("m", "e"), programs.newton_values, hand.newton, False)
    ],
    "newton_many": [
        Native(
            "Newton x200",
            programs.newton_many,
            ("m", "e"),
            programs.newton_many_values,
            hand.newton_many,
        )
    ],
    "newton_data": [
        Native(
            "Newton, data",
            programs.newton_data,
            ("start", "scale"),
            programs.newton_data_values,
            hand.newton_data,
        )
    ],
}


def natives(
    pairs: int, names: Any, say: Callable[[str], None], pytensor_too: bool = False
) -> Iterator[Figure]:
    for name in names or PROGRAMS:
        for p in PROGRAMS[name]:
            say(f"native, {p.title}")
            for comparison in (*COMPARISONS, *(PYTENSOR if pytensor_too else ())):
                yield figure(p, comparison, pairs)


def figure(p: Native, comparison: Comparison, pairs: int) -> Figure:
    args, run = arguments(p), comparison.make(p)
    check(p, args, run(*args))
    seconds = [pair_of_calls(run, p.hand, args, lambda result: None) for _ in range(pairs)]
    limit = comparison.limit if p.counts else None
    return Figure(p.title, comparison.name, NATIVE, limit, Pairs(*np.transpose(seconds)))


def check(p: Native, args: list, result: Any) -> None:
    """The value beside the one by hand; gradients, in one direction, beside differences of it."""
    np.testing.assert_allclose(value_of(result), p.hand(*args), rtol=RTOL)
    if not isinstance(result, tuple | list):
        return
    gradients = result[1] if isinstance(result, tuple) else result[1:]
    inputs, _ = p.graph()
    rng = np.random.default_rng(0)
    ahead, behind, slope = list(args), list(args), 0.0
    wrt = [k for k, v in enumerate(inputs) if v.name in p.wrt]
    for k, gradient in zip(wrt, gradients, strict=True):
        # Small beside each element: probabilities stay positive.
        direction = np.asarray(args[k]) * rng.uniform(0.5, 1.0, np.shape(args[k]))
        slope += float(np.sum(gradient * direction))
        for moved, by in ((ahead, STEP), (behind, -STEP)):
            x = args[k] + by * direction
            moved[k] = x if np.ndim(x) else float(x)
    difference = (p.hand(*ahead) - p.hand(*behind)) / (2 * STEP)
    np.testing.assert_allclose(slope, difference, rtol=RTOL_SLOPE, atol=1e-6 * abs(p.hand(*args)))


def value_of(result: Any) -> Any:
    return result[0] if isinstance(result, tuple | list) else result


def arguments(p: Native) -> list[Any]:
    """Arrays, and Python's floats."""
    return [x if np.ndim(x) else float(x) for x in p.values()]


# -- what is compiled ----------------------------------------------------------------------------------


def forward(p: Native) -> Callable:
    return jaxify(*p.graph(), backend="numba")


def pytensor_grad(p: Native) -> Callable:
    """What `pytensor.grad` makes of PyTensor's own loop."""
    inputs, out = p.graph()
    wrt = [v for v in inputs if v.name in p.wrt]
    return jaxify(inputs, (out, tuple(pytensor.grad(out, wrt))), backend="numba")


def loopax_grad(p: Native) -> Callable:
    """The pullback of our own loop."""
    inputs, out = p.graph()
    argnums = tuple(k for k, v in enumerate(inputs) if v.name in p.wrt)
    return value_and_grad(jaxify(inputs, out, backend="numba"), argnums)


def pytensor_mode(p: Native) -> Callable:
    """PyTensor's own, in which one gradient takes over a minute to compile."""
    inputs, out = p.graph()
    return pytensor.function(inputs, out, mode="NUMBA")


def pytensor_mode_grad(p: Native) -> Callable:
    inputs, out = p.graph()
    wrt = [v for v in inputs if v.name in p.wrt]
    return pytensor.function(inputs, [out, *pytensor.grad(out, wrt)], mode="NUMBA")


COMPARISONS = (
    Comparison("forward", forward, FORWARD),
    Comparison("pytensor.grad", pytensor_grad, GRADIENT),
    Comparison("loopax.grad", loopax_grad, GRADIENT),
)
PYTENSOR = (
    Comparison("NUMBA", pytensor_mode, None),
    Comparison("NUMBA, grad", pytensor_mode_grad, None),
)
