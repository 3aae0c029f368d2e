"""Programs as one native function beside what an expert writes by hand with Numba.

Both sides are called from Python, on NumPy arrays and floats. The yardstick is the hand-written
*forward* pass, for the value and for the value with its gradients: nobody writes the latter by hand.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytensor
from numba import njit

from benchmarks.measure import Pairs, pair_of_calls
from benchmarks.programs import garch_graph, garch_values, kalman_graph, kalman_values
from benchmarks.report import NATIVE, Figure
from loopax.frontend import import_graph, read_variables
from loopax.lowering import lower_to_loops
from loopax.numba_backend import compile_program

RTOL = 1e-9
LIMIT = 3.0  # value and gradients, to the hand-written forward pass

native = njit(error_model="numpy")  # as ours: 1.13 to 0.96 of Python's, which checks each division


@native
def garch(w, a, b, s2, r):
    total = 0.0
    for t in range(r.size):
        total += np.log(2 * np.pi * s2) + r[t] ** 2 / s2
        s2 = w + a * r[t] ** 2 + b * s2
    return -0.5 * total


@native
def kalman(T, Z, Q, H, a, P, y):
    total = 0.0
    for t in range(y.size):
        v = y[t] - Z @ a
        F = Z @ P @ Z + H
        K = T @ P @ Z / F
        total += np.log(2 * np.pi * F) + v**2 / F
        a = T @ a + K * v
        P = T @ P @ (T - np.outer(K, Z)).T + Q
    return -0.5 * total


@native
def kalman_in_loops(T, Z, Q, H, a_0, P_0, y):
    # Nothing allocated in a step, each product as loops of a length that is known to the compiler.
    a, P = a_0.copy(), P_0.copy()
    Ta, PZ, K = np.empty(3), np.empty(3), np.empty(3)
    TP, L = np.empty((3, 3)), np.empty((3, 3))
    total = 0.0
    for t in range(y.size):
        v, F = y[t], H
        for i in range(3):
            PZ[i] = 0.0
            for j in range(3):
                PZ[i] += P[i, j] * Z[j]
            v -= Z[i] * a[i]
            F += Z[i] * PZ[i]
        total += np.log(2 * np.pi * F) + v**2 / F
        for i in range(3):
            Ta[i] = K[i] = 0.0
            for j in range(3):
                Ta[i] += T[i, j] * a[j]
                K[i] += T[i, j] * PZ[j]
            K[i] /= F
            for j in range(3):
                L[i, j] = T[i, j] - K[i] * Z[j]
                TP[i, j] = 0.0
                for k in range(3):
                    TP[i, j] += T[i, k] * P[k, j]
        for i in range(3):
            a[i] = Ta[i] + K[i] * v
            for j in range(3):
                P[i, j] = Q[i, j]
                for k in range(3):
                    P[i, j] += TP[i, k] * L[j, k]
    return -0.5 * total


class Native(NamedTuple):
    title: str
    graph: Callable[[], tuple[list, Any]]
    wrt: tuple[str, ...]  # the inputs of the gradients
    values: Callable[[], list[np.ndarray]]
    hand: Callable[..., float]
    limit: float | None


# The matrices of the filter have a static shape, as an expert's code has it too.
PROGRAMS = (
    Native("GARCH 2000", garch_graph, ("w", "a", "b", "s2_0"), garch_values, garch, LIMIT),
    Native("Kalman 200", lambda: kalman_graph(3), ("T", "Q", "H"), kalman_values, kalman, LIMIT),
    Native(
        "  in loops",
        lambda: kalman_graph(3),
        ("T", "Q", "H"),
        kalman_values,
        kalman_in_loops,
        None,
    ),
)


def natives(pairs: int) -> Iterator[Figure]:
    for p in PROGRAMS:
        inputs, out = p.graph()
        args = [x if x.ndim else x.item() for x in p.values()]
        gradients = pytensor.grad(out, [v for v in inputs if v.name in p.wrt])
        for comparison, outputs, limit in (
            ("value", [out], None),
            ("value, grad", [out, *gradients], p.limit),
        ):
            run = compiled(inputs, outputs)
            np.testing.assert_allclose(run(*args)[0], p.hand(*args), rtol=RTOL)
            seconds = [pair_of_calls(run, p.hand, args, lambda result: None) for _ in range(pairs)]
            yield Figure(p.title, comparison, NATIVE, limit, Pairs(*np.transpose(seconds)))


def compiled(inputs: list, outputs: list) -> Callable:
    program = read_variables(inputs, outputs)
    import_graph(program.graph)
    lower_to_loops(program.graph)
    return compile_program(program.graph)
