"""Loops that look alike, and must or must not become one."""

import numpy as np
import pytensor.tensor as pt

from .record import program, scan

X6 = np.array([0.3, 1.2, -0.7, 2.0, 0.1, -1.5])


@program(X6, 0.5, 0.25, 1.0, thread="pytensor 2252", grad_wrt=("x", "y0"))
def echoed_input_beside_a_state():
    """x_lag is a carry whose next value is the sequence's; the other state is another."""
    x = pt.vector("x")
    a, b, y0 = pt.scalars("a", "b", "y0")
    zero = pt.as_tensor(np.float64(0.0))

    def step(x_t, y_prev, x_lag, a, b):
        mu = a + b * x_lag + 0.1 * y_prev
        return mu, mu, x_t

    means = [
        scan(step, sequences=x, outputs_info=[None, init, zero], non_sequences=[a, b])[0]
        for init in (y0, zero)
    ]
    return [x, a, b, y0], means


@program(X6, thread="pytensor 510", grad_wrt=("x",))
def equal_loops():
    x = pt.vector("x")
    outs = [
        scan(lambda x_t, s: pt.tanh(s) + x_t, sequences=x, outputs_info=pt.zeros(()))
        for _ in range(2)
    ]
    return [x], [outs[0][-1], (outs[1] ** 2).sum()]


@program(X6, thread="pytensor 510", grad_wrt=("x",))
def equal_steps_of_different_lengths():
    x = pt.vector("x")
    outs = [
        scan(lambda s: s * 0.5 + 1.0, outputs_info=x, n_steps=n)
        for n in (x.shape[0], x.shape[0] - 1)
    ]
    return [x], [out.sum(axis=0) for out in outs]


@program(X6, thread="pytensor 2226", grad_wrt=("x",))
def one_feeds_its_twin():
    x = pt.vector("x")

    def run(seq):
        return scan(lambda x_t, s: pt.sin(s) + x_t, sequences=seq, outputs_info=pt.zeros(()))

    return [x], run(run(x)) + run(x)


@program(X6, thread="pytensor 787", grad_wrt=("x",))
def equal_states_in_one_loop():
    """Two states with the same step and start, and one that is never used."""
    x = pt.vector("x")
    a, b, _ = scan(
        lambda x_t, a, b, c: (a + x_t, b + x_t, c * x_t),
        sequences=x,
        outputs_info=[pt.zeros(()), pt.zeros(()), pt.ones(())],
    )
    return [x], a * b


@program(X6, thread="pytensor 2252")
def states_that_change_places():
    x = pt.vector("x")
    a, b = scan(
        lambda x_t, a, b: (b, a + x_t), sequences=x, outputs_info=[pt.zeros(()), pt.ones(())]
    )
    return [x], [a, b]
