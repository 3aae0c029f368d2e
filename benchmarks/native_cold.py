"""What a native program costs before it runs: seconds to the first result, and their growth with its size.

Process time, which others on the machine disturb less. Nothing comes from a cache: a program of
`native` is compiled in a process of its own, where everything has been imported and Numba has compiled
one function before.
"""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numba import njit

from benchmarks.measure import Pairs
from benchmarks.native import COMPARISONS, PROGRAMS, PYTENSOR, Native, arguments
from benchmarks.programs import kalman_graph, kalman_values
from benchmarks.report import COLD, NATIVE_GROWTH, Figure
from loopax import jaxify

LIMIT = 5.0  # seconds
LINEAR = 2.0


def colds(
    pairs: int, names: Any, say: Callable[[str], None], pytensor_too: bool = False
) -> Iterator[Figure]:
    """Of each program forward and with a gradient; beside them how long Numba compiles the one by hand."""
    for name in names or PROGRAMS:
        for k, p in enumerate(PROGRAMS[name]):
            if not p.counts and name != "newton":
                continue  # a program that is there twice
            say(f"cold, {p.title}")
            for comparison in (*COMPARISONS, *(PYTENSOR if pytensor_too else ())):
                seconds = [cold(name, k, comparison.name) for _ in range(max(1, pairs // 5))]
                limit = None if comparison in PYTENSOR else LIMIT
                yield Figure(p.title, comparison.name, COLD, limit, Pairs(*np.transpose(seconds)))


def cold(name: str, variant: int, comparison: str) -> list[float]:
    """Seconds of ours and of the one by hand, in a new process."""
    command = [sys.executable, "-m", "benchmarks.native_cold", name, str(variant), comparison]
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},numba__cache=False".lstrip(",")
    out = subprocess.run(
        command,
        env=os.environ | {"PYTENSOR_FLAGS": flags},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return [float(x) for x in out.split()]


def first_results(p: Native, comparison: str) -> tuple[float, float]:
    make = {c.name: c.make for c in (*COMPARISONS, *PYTENSOR)}[comparison]
    args = arguments(p)
    njit(lambda x: x + 1.0)(1.0)
    return seconds_of(lambda: make(p)(*args)), seconds_of(lambda: p.hand(*args))


def seconds_of(run: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


# -- growth ------------------------------------------------------------------------------------------


def filter_of_states(n: int) -> tuple[list, Any, list]:
    """A Kalman filter with n states, which says more about matrices than about loops."""
    T, Z, Q, H, a, P, y = kalman_values()
    values = [0.7 * np.eye(n), np.ones(n), 0.1 * np.eye(n), float(H), np.zeros(n), np.eye(n), y]
    return *kalman_graph(n), values


def chain(n: int) -> tuple[list, Any, list]:
    """A step of about n operations on scalars."""
    x, r = pt.dscalar("x"), pt.dvector("r")

    def step(r: Any, c: Any) -> Any:
        for k in range(n // 4):
            c = pt.tanh(c * (0.5 + k) + r) - r
        return c

    trace = pytensor.scan(step, sequences=[r], outputs_info=[x], return_updates=False)
    return [x, r], (trace**2).sum(), [0.1, np.linspace(0.0, 1.0, 50)]


def loops(n: int) -> tuple[list, Any, list]:
    """One after the other: each reads the trace of the one before, from its end."""
    x, r = pt.dscalar("x"), pt.dvector("r")
    trace = r
    for _ in range(n):
        trace = pytensor.scan(
            lambda r, c: pt.tanh(c + r) - 0.5 * r,
            sequences=[trace[::-1]],
            outputs_info=[x],
            return_updates=False,
        )
    return [x, r], (trace**2).sum(), [0.1, np.linspace(0.0, 1.0, 50)]


KINDS: dict[str, tuple[Callable, tuple[int, ...], int]] = {
    "Kalman, states": (filter_of_states, (2, 3, 4, 6, 8, 12), 2),
    "operations": (chain, (20, 40, 80, 160), 1),
    "loops": (loops, (2, 4, 8, 16), 1),
}


def growth(pairs: int, say: Callable[[str], None]) -> Iterator[Figure]:
    """Seconds to value and gradient, each size beside the smallest, divided by what it has more.

    A matrix has the square of the number of states; from some size on its products are loops, and
    neither the source nor the time grows any more.
    """
    for kind, (build, sizes, power) in KINDS.items():
        say(f"growth of the first result, {kind}")
        runs = [[value_and_grad(*build(n)) for n in sizes] for _ in range(max(1, pairs // 5))]
        lines = [n for _, n in runs[0]]
        seconds = np.array([[s for s, _ in run] for run in runs])
        for k, n in enumerate(sizes):
            more = (n / sizes[0]) ** power
            yield Figure(
                kind,
                f"{n}: {lines[k]} lines",
                NATIVE_GROWTH,
                LINEAR if k else None,
                Pairs(seconds[:, k] / more, seconds[:, 0]),
            )


def value_and_grad(inputs: list, out: Any, values: list) -> tuple[float, int]:
    """Seconds to the first result, and the lines of the program."""
    wrt = [v for v in inputs if v.name != "y"]
    outputs = [out, *pytensor.grad(out, wrt, disconnected_inputs="ignore")]
    functions = []

    def run() -> None:
        functions.append(jaxify(inputs, outputs, backend="numba"))
        functions[0](*values)

    seconds = seconds_of(run)
    return seconds, len(functions[0].source.splitlines())


if __name__ == "__main__":
    name, variant, comparison = sys.argv[1:]
    print(*first_results(PROGRAMS[name][int(variant)], comparison))
