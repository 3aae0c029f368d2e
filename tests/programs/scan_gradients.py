"""Gradients that PyTensor takes of a scan (MIT-MOT inside), and those jax.grad takes of it."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from .record import program, scan

X5 = np.array([0.5, -1.0, 1.2, 0.25, 1.5])
M43 = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
W33 = np.array([[0.2, -0.1, 0.3], [0.0, 0.4, -0.2], [0.1, 0.1, 0.5]])


def _rnn(x, w, h0, **kwargs):
    return scan(
        lambda x_t, h, w: pt.tanh(x_t + h @ w),
        sequences=x,
        outputs_info=h0,
        non_sequences=w,
        **kwargs,
    )


@program(X5, thread="pytensor 264", grad_wrt=("x",))
def after_the_sequence():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t, sequences=x, outputs_info=pt.ones(()))
    return [x], pt.grad((trace**2).sum(), x)


@program(X5, thread="pytensor 264", grad_wrt=("x0",))
def after_the_initial_state():
    x0 = pt.vector("x0")
    trace = scan(lambda s: pt.sin(s) + s, outputs_info=x0, n_steps=4)
    return [x0], pt.grad((trace**2).sum(), x0)


@program(M43, W33, np.array([0.1, 0.2, -0.3]), thread="pytensor 264")
def after_everything_of_a_network():
    x, w, h0 = pt.matrix("x"), pt.matrix("w"), pt.vector("h0")
    return [x, w, h0], pt.grad((_rnn(x, w, h0) ** 2).sum(), [x, w, h0])


@program(0.9, thread="pytensor 1687", grad_wrt=("x0",))
def of_the_last_state_only():
    x0 = pt.scalar("x0")
    trace = scan(lambda s: s**2, outputs_info=x0, n_steps=4)
    return [x0], pt.grad(trace[-1], x0)


@program(3, 0.9, thread="pytensor 112", static=("n",), grad_wrt=("x0",))
def of_as_many_steps_as_an_input():
    n, x0 = pt.lscalar("n"), pt.scalar("x0")
    trace = scan(lambda s: s**2, outputs_info=x0, n_steps=n)
    return [n, x0], pt.grad(trace[-1], x0)


@program(X5, thread="pytensor 264")
def two_taps():
    x = pt.vector("x")
    trace = scan(
        lambda x_t, y1, y2: pt.tanh(0.6 * y1 - 0.3 * y2 * x_t),
        sequences=x,
        outputs_info={"initial": x[:2], "taps": [-1, -2]},
    )
    return [x], pt.grad((trace**2).sum(), x)


@program(X5, thread="pytensor 264")
def taps_that_are_not_neighbours():
    x = pt.vector("x")
    trace = scan(
        lambda x_t, y1, y3: pt.sin(y1) * y3 + x_t,
        sequences=x,
        outputs_info={"initial": x[:3], "taps": [-1, -3]},
    )
    return [x], pt.grad((trace**2).sum(), x)


@program(X5, thread="pytensor 264")
def sequence_taps():
    x = pt.vector("x")
    trace = scan(
        lambda a, b, c, s: pt.tanh(s) * a - b * c,
        sequences={"input": x, "taps": [-1, 0, 1]},
        outputs_info=pt.ones(()),
    )
    return [x], pt.grad((trace**2).sum(), x)


@program(X5, thread="pytensor 1669")
def second_order():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t + s, sequences=x, outputs_info=pt.ones(()))
    first = pt.grad((trace**2).sum(), x)
    return [x], pt.grad((first * pt.arange(x.shape[0])).sum(), x)


@program(X5, thread="pytensor 1669")
def second_order_of_two_taps():
    x = pt.vector("x")
    trace = scan(
        lambda y1, y2: pt.sin(y1) * y2,
        outputs_info={"initial": x[:2], "taps": [-1, -2]},
        n_steps=x.shape[0],
    )
    first = pt.grad(trace[-1] ** 2, x)
    return [x], pt.grad((first**2).sum(), x)


@program(0.95, thread="pytensor 1772", expected=lambda x: 32 * 31 * 30 * x**29)
def third_order():
    """Five squarings are x**32. Wrong in every PyTensor of its time."""
    x = pt.scalar("x")
    last = scan(lambda s: s**2, outputs_info=x, n_steps=5)[-1]
    return [x], pt.grad(pt.grad(pt.grad(last, x), x), x)


@program(M43, W33, thread="Theano 4652")
def truncated():
    x, w = pt.matrix("x"), pt.matrix("w")
    trace = _rnn(x, w, pt.zeros(3), truncate_gradient=2)
    return [x, w], pt.grad(trace.sum(), w)


@program(X5, thread="pytensor 1687")
def backwards():
    x = pt.vector("x")
    trace = scan(
        lambda x_t, s: pt.sin(s) + x_t**2, sequences=x, outputs_info=pt.zeros(()), go_backwards=True
    )
    return [x], pt.grad((trace * x).sum(), x)


@program(M43, thread="pytensor 1425")
def nested():
    m = pt.matrix("m")

    def row_step(row, total):
        return scan(lambda e, s: pt.tanh(s) + e, sequences=row, outputs_info=total)[-1]

    trace = scan(row_step, sequences=m, outputs_info=pt.zeros(()))
    return [m], pt.grad((trace**2).sum(), m)


@program(X5, thread="pytensor 1652", grad_wrt=("x",))
def beside_an_integer_state():
    x = pt.vector("x")
    count, trace = scan(
        lambda x_t, i, s: (i + 1, pt.sin(s) * x_t + i),
        sequences=x,
        outputs_info=[pt.constant(0, dtype="int64"), pt.ones(())],
    )
    return [x], [pt.grad(trace.sum(), x), count]


@program(X5, np.arange(5.0), thread="pytensor 787")
def forward_mode():
    x, v = pt.vector("x"), pt.vector("v")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t, sequences=x, outputs_info=pt.ones(()))
    return [x, v], pytensor.gradient.pushforward(trace, x, v)


@program(X5, thread="pytensor 264")
def jacobian_of_a_loop():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t, sequences=x, outputs_info=pt.ones(()))
    return [x], pytensor.gradient.jacobian(trace, x)


@program(X5, thread="pytensor 264", grad_wrt=("x",))
def jacobian_of_an_expression():
    """pytensor's jacobian is a scan over rows, the expression need not hold one."""
    x = pt.vector("x")
    return [x], pytensor.gradient.jacobian(pt.exp(x) * x.sum(), x)


@program(X5, thread="pytensor 1669")
def hessian_of_an_expression():
    x = pt.vector("x")
    return [x], pytensor.gradient.hessian((pt.sin(x) ** 2).sum() * pt.exp(x[0]), x)


@program(X5, thread="pytensor 1669", hessian_wrt="x")
def hessian_of_a_loop():
    x = pt.vector("x")
    trace = scan(lambda x_t, s: pt.sin(s) * x_t, sequences=x, outputs_info=pt.ones(()))
    return [x], (trace**2).sum()


@program(M43, W33, thread="pytensor 264")
def hessian_times_a_vector():
    x, w = pt.matrix("x"), pt.matrix("w")
    first = pt.grad((_rnn(x, w, pt.zeros(3)) ** 2).sum(), w)
    return [x, w], pt.grad((first * w).sum(), w, consider_constant=[])


@program(X5, thread="pytensor 264")
def cut_and_scaled_inside():
    """disconnected_grad and grad_clip are part of what the author meant."""
    x = pt.vector("x")

    def step(x_t, s):
        return pt.sin(pytensor.gradient.disconnected_grad(s)) * x_t + s

    trace = scan(step, sequences=x, outputs_info=pt.ones(()))
    clipped = pytensor.gradient.grad_clip(trace, -0.5, 0.5)
    return [x], pt.grad((clipped**2).sum(), x)


@program(X5, X5 * 0.5, thread="pytensor 1687")
def gradient_of_a_masked_trace():
    x, y = pt.vector("x"), pt.vector("y")
    trace = scan(lambda x_t, s: 0.8 * s + x_t, sequences=x, outputs_info=pt.zeros(()))
    kept = pt.switch(y > 0, (trace - y) ** 2, 0.0)
    return [x, y], pt.grad(kept.sum() + trace[-1], x)


@program(X5, thread="pytensor 1741")
def through_the_buffer():
    """The gradient after a state that is read at two places of the trace."""
    x = pt.vector("x")
    trace = scan(lambda s: s * 1.1 + 0.1, outputs_info=x, n_steps=6)
    return [x], pt.grad((trace[1] * trace[4]).sum(), x)
