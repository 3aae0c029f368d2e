"""Loops that stop early: `until` in the step. Issue 5."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until

from .record import program, scan

X6 = np.array([0.3, 1.2, 0.7, 2.0, 0.1, 1.5])


@program(7, thread="pytensor 265", issue=5)
def collatz_length():
    n = pt.lscalar("n")

    def step(k, count):
        k = pt.switch(pt.eq(k % 2, 0), k // 2, 3 * k + 1)
        return (k, count + 1), until(pt.eq(k, 1))

    last, count = scan(step, outputs_info=[n, pt.constant(0, dtype="int64")], n_steps=200)
    return [n], [last[-1], count[-1]]


@program(2.0, thread="pytensor 178", issue=5, grad_wrt=("a",))
def newton_root():
    a = pt.scalar("a")

    def step(x, a):
        new = 0.5 * (x + a / x)
        return new, until(pt.abs(new - x) < 1e-10)

    return [a], scan(step, outputs_info=a, non_sequences=a, n_steps=50)[-1]


@program(1.0, 20.0, thread="pytensor 265", issue=5)
def powers_of_two_until():
    """The doc's example: the trace itself is the result, its length is data."""
    x, limit = pt.scalar("x"), pt.scalar("limit")
    trace = scan(
        lambda x, limit: (x * 2.0, until(x * 2.0 > limit)),
        outputs_info=x,
        non_sequences=limit,
        n_steps=100,
    )
    return [x, limit], trace


def _slope_until_a_threshold(weights, x):
    """Of the sum of the trace, and its last row. (PyTensor 3.0's own shifts the rows.)"""
    n = int(np.argmax(np.cumsum(x) > 3.0)) + 1
    later = np.where(np.arange(len(x)) < n, n - np.arange(len(x)), 0.0)
    return [weights[0] * later + weights[1] * (later > 0)]


@program(
    X6, thread="pytensor 2217", issue=5, grad_wrt=("x",), expected_grads=_slope_until_a_threshold
)
def sum_until_a_threshold():
    x = pt.vector("x")
    trace = scan(
        lambda x_t, s: (s + x_t, until(s + x_t > 3.0)), sequences=x, outputs_info=pt.zeros(())
    )
    return [x], [trace.sum(), trace[-1], trace.shape[0]]


@program(X6, thread="pytensor 2217", issue=5)
def gradient_through_until():
    """PyTensor's own gradient graph of a loop that stops, after sequence and initial state."""
    x = pt.vector("x")
    trace = scan(
        lambda x_t, s: (pt.sin(s) + x_t**2, until(s + x_t > 2.0)), sequences=x, outputs_info=x[0]
    )
    return [x], pt.grad(trace[-1] ** 2, x)


@program(X6, 2.5, thread="pytensor 265", issue=5, grad_wrt=("x",))
def output_without_a_state():
    x, limit = pt.vector("x"), pt.scalar("limit")
    trace = scan(lambda x_t, limit: (x_t**2, until(x_t**2 > limit)), x, non_sequences=[limit])
    return [x, limit], [trace.mean(), trace.max()]


@program(X6[:3], thread="pytensor 1425", issue=5, expected=np.sqrt)
def vectorized_newton():
    """Rows that stop at different steps: no mode of PyTensor runs it."""
    a, rows = pt.scalar("a"), pt.vector("rows")

    def step(x, a):
        new = 0.5 * (x + a / x)
        return new, until(pt.abs(new - x) < 1e-12)

    root = scan(step, outputs_info=a, non_sequences=a, n_steps=50)[-1]
    return [rows], vectorize_graph(root, {a: rows})


@program(1.0, thread="pytensor 509", issue=5)
def two_loops_with_different_stops():
    """Equal steps, other conditions: they must not become one loop."""
    x = pt.scalar("x")
    outs = [
        scan(lambda s, limit=limit: (s + 1.0, until(s + 1.0 >= limit)), outputs_info=x, n_steps=20)
        for limit in (3.0, 7.0)
    ]
    return [x], [out[-1] for out in outs]


@program(0, X6, thread="pytensor 1878", issue=5, static=("n",))
def stops_before_it_starts():
    n, x = pt.lscalar("n"), pt.vector("x")
    trace = scan(lambda s: (s * 2.0, until(s.sum() > 100)), outputs_info=x, n_steps=n)
    return [n, x], pt.concatenate([x[None], trace])[-1]


@program(np.linspace(0.1, 0.9, 6).reshape(2, 3), thread="pytensor 1425", issue=5)
def stop_inside_a_plain_loop():
    m = pt.matrix("m")

    def row_step(row):
        return scan(
            lambda e, s: (s + e, until(s + e > 0.5)), sequences=row, outputs_info=pt.zeros(())
        )[-1]

    return [m], pytensor.scan(row_step, sequences=m, return_updates=False)
