"""No steps at all: n_steps = 0 as a literal and as an input, sequences and arrays of no rows."""

import numpy as np
import pytensor.tensor as pt

from .record import program, scan

X3 = np.array([1.0, 2.0, 3.0])
EMPTY = np.zeros((0, 3))


@program(0, X3, thread="pytensor 1288", static=("n",))
def trace_of_a_state():
    n, x0 = pt.iscalar("n"), pt.vector("x0")
    return [n, x0], scan(lambda s: s + 1.0, outputs_info=x0, n_steps=n)


@program(
    0,
    X3,
    thread="pytensor 1287",
    static=("n",),
    expected=lambda n, x0: [np.zeros((0, 3)), np.zeros((0, 3))],
)
def trace_of_an_output():
    """PyTensor gives the second a shape of (0, 0)."""
    n, x0 = pt.iscalar("n"), pt.vector("x0")
    return [n, x0], scan(lambda s: (s + 1.0, s * 2.0), outputs_info=[x0, None], n_steps=n)


@program(0, X3, thread="pytensor 1878", expected=lambda n, x0: x0, grad_wrt=("x0",))
def last_row_of_the_buffer():
    """The buffer holds the initial state in front, so its last row exists."""
    n, x0 = pt.lscalar("n"), pt.vector("x0")
    trace = scan(lambda s: s * 2.0, outputs_info=x0, n_steps=n)
    return [n, x0], trace.owner.inputs[0][-1]


@program(
    0,
    X3,
    thread="pytensor 1287",
    static=("n",),
    expected=lambda n, x0: [(x0**2).sum(), 2.0 * x0],
    grad_wrt=("x0",),
    expected_grads=lambda w, n, x0: 2.0 * x0 * w[0] + 2.0 * w[1],
)
def sum_and_gradient():
    """The backward loop meets PyTensor's (0, 0) and raises."""
    n, x0 = pt.lscalar("n"), pt.vector("x0")
    trace = scan(lambda s: pt.sin(s), outputs_info=x0, n_steps=n)
    cost = trace.sum() + (x0**2).sum()
    return [n, x0], [cost, pt.grad(cost, x0)]


@program(
    EMPTY,
    X3,
    thread="aesara 659",
    grad_wrt=("m", "x0"),
    expected_grads=lambda w, m, x0: [np.zeros((0, 3)), w[2]],
)
def sequence_of_no_rows():
    m, x0 = pt.matrix("m"), pt.vector("x0")
    trace = scan(lambda row, s: s * row, sequences=m, outputs_info=x0)
    return [m, x0], [trace, trace.sum(axis=0), pt.concatenate([x0[None], trace])[-1]]


@program([], thread="aesara 659", grad_wrt=("x",))
def empty_vector():
    x = pt.vector("x")
    return [x], scan(
        lambda e, s: s + e, sequences=x, outputs_info=pt.constant(10.0, dtype="float64")
    )


@program(EMPTY, X3, thread="pytensor 1878", expected=lambda m, x0: [np.zeros((0, 3)), 2.0 * x0])
def gradient_of_a_sequence_of_no_rows():
    m, x0 = pt.matrix("m"), pt.vector("x0")
    trace = scan(lambda row, s: pt.tanh(s) * row, sequences=m, outputs_info=x0)
    last = pt.concatenate([x0[None], trace])[-1]
    return [m, x0], pt.grad((last**2).sum(), [m, x0])


@program(EMPTY, thread="pytensor 2040", expected=lambda m: [np.zeros(0), np.zeros((0, 3, 3))])
def outputs_without_a_state():
    """A map over no rows: the shape of an element is known all the same."""
    m = pt.matrix("m")
    return [m], scan(lambda row: (row.sum(), pt.outer(row, row)), sequences=m)


@program(np.zeros((2, 0)), thread="pytensor 2040", grad_wrt=("m",))
def inner_loop_of_no_steps():
    m = pt.matrix("m")

    def row_step(row, s):
        inner = scan(lambda e, a: a + e, sequences=row, outputs_info=s)
        return s + inner.sum() + 1.0

    return [m], scan(row_step, sequences=m, outputs_info=pt.zeros(()))


@program([1.0, 2.0], 0, thread="pytensor 328", static=("n",), grad_wrt=("x",))
def two_taps_of_no_steps():
    x, n = pt.vector("x"), pt.lscalar("n")
    trace = scan(lambda a, b: a + b, outputs_info={"initial": x, "taps": [-1, -2]}, n_steps=n)
    return [x, n], pt.concatenate([x, trace])


@program(EMPTY, thread="pytensor 1902", grad_wrt=("m",))
def reductions_of_no_rows():
    m = pt.matrix("m")
    return [m], [
        m.sum(axis=0),
        m.prod(axis=0),
        m.T @ m,
        pt.cumsum(m, axis=0),
        m[::-1].reshape((-1,)),
    ]
